"""Writes what the library is made of, as a CycloneDX 1.5 document (https://cyclonedx.org):

    python3 scripts/sbom.py [FEATURES] > oxpipe.cdx.json

FEATURES are Cargo's, with commas between them; "native,ort" if left out. Everything comes from
Cargo.lock and the crates' own descriptions by way of `cargo metadata`: each crate that is compiled into
the library, its version, licence and the SHA-256 of what crates.io has. Crates that only tests or builds
need are not in it. The document holds no time and no random number, so that the same commit gives
the same bytes.
"""

import json
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def metadata(features):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--no-default-features"]
    command += ["--features", features]
    host = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = next(line.split()[1] for line in host.splitlines() if line.startswith("host:"))
    command += ["--filter-platform", host]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return json.loads(said.stdout)


def compiled_in(document):
    """The ids of packages that are reached without development and build dependencies, and what each needs."""
    nodes = {node["id"]: node for node in document["resolve"]["nodes"]}
    kinds = {package["id"]: package["targets"] for package in document["packages"]}
    needs = {}
    waiting = [document["resolve"]["root"]]
    while waiting:
        package = waiting.pop()
        if package in needs:
            continue
        # A procedural macro runs in the compiler; what it needs is not in the library either.
        macro = any("proc-macro" in target["kind"] for target in kinds[package])
        found = [
            dependency["pkg"]
            for dependency in nodes[package]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
        needs[package] = [] if macro else found
        waiting.extend(needs[package])
    macros = {
        package for package in needs if any("proc-macro" in target["kind"] for target in kinds[package])
    }
    return {
        package: sorted(set(found) - macros) for package, found in needs.items() if package not in macros
    }


def checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, sums):
    found = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package.get("description"):
        found["description"] = " ".join(package["description"].split())
    if package.get("license"):
        # An old way to write OR, which SPDX does not know.
        expression = " OR ".join(part.strip() for part in package["license"].split("/"))
        found["licenses"] = [{"expression": expression}]
    checksum = sums.get((package["name"], package["version"]))
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("repository"):
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found


def main():
    features = sys.argv[1] if len(sys.argv) > 1 else "native,ort"
    document = metadata(features)
    packages = {package["id"]: package for package in document["packages"]}
    needs = compiled_in(document)
    sums = checksums()
    root = packages[document["resolve"]["root"]]
    others = sorted((packages[id] for id in needs if packages[id] is not root), key=reference)
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(root, sums)},
        "components": [component(package, sums) for package in others],
        "dependencies": [
            {"ref": reference(packages[id]), "dependsOn": sorted(reference(packages[of]) for of in found)}
            for id, found in sorted(needs.items(), key=lambda item: reference(packages[item[0]]))
        ],
    }
    json.dump(bom, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
