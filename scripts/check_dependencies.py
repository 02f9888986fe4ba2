"""Holds the crates of Cargo.lock to deny.toml without cargo-deny: licences, versions that are there twice,
banned crates, sources. Reads what it knows of deny.toml and refuses a deny.toml that has more:

    python3 scripts/check_dependencies.py

For where a tool of 400 crates is too much to build; scripts/check-dependencies.sh runs cargo-deny itself.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
KNOWN = {
    "graph": {"all-features"},
    "licenses": {"allow", "confidence-threshold", "include-dev", "exceptions", "private"},
    "bans": {
        "multiple-versions",
        "multiple-versions-include-dev",
        "wildcards",
        "allow-wildcard-paths",
        "deny",
        "skip",
    },
    "sources": {"unknown-registry", "unknown-git", "allow-registry"},
    "advisories": {"yanked", "unmaintained"},
}


def is_allowed(expression, allowed):
    """Whether an SPDX expression can be met with these licences: AND binds closer than OR."""
    # An old way to write OR.
    text = expression.replace("/", " OR ")
    tokens = re.findall(r"\(|\)|[^\s()]+", text)

    def either():
        result = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            # Both sides are read, whatever the first says.
            other = both()
            result = result or other
        return result

    def both():
        result = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            other = one()
            result = result and other
        return result

    def one():
        token = tokens.pop(0)
        if token == "(":
            result = either()
            if not tokens or tokens.pop(0) != ")":
                raise ValueError(f"{expression!r} lacks a bracket")
            return result
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            token = f"{token} WITH {tokens.pop(0)}"
        return token in allowed

    result = either()
    if tokens:
        raise ValueError(f"{expression!r} is no expression of licences")
    return result


def problems(rules, packages):
    allowed = set(rules["licenses"]["allow"])
    more = {rule["crate"]: set(rule["allow"]) for rule in rules["licenses"].get("exceptions", [])}
    banned = {rule["crate"]: rule["reason"] for rule in rules["bans"]["deny"]}
    skipped = {rule["crate"] for rule in rules["bans"].get("skip", [])}
    registries = {f"registry+{url}" for url in rules["sources"]["allow-registry"]}
    versions = {}
    for package in packages:
        name, version = package["name"], package["version"]
        versions.setdefault(name, []).append(version)
        if package["source"] is not None:
            if package["source"] not in registries:
                yield f"{name} {version} comes from {package['source']}"
            if not package["license"]:
                yield f"{name} {version} has no licence"
            elif not is_allowed(package["license"], allowed | more.get(name, set())):
                yield f"{name} {version} is under {package['license']}"
        if name in banned:
            yield f"{name} {version} is banned: {banned[name]}"
    for name, found in sorted(versions.items()):
        # cargo-deny's way to say that one of them is known: crate@version.
        known = [version for version in found if f"{name}@{version}" in skipped]
        if len(found) - len(known) > 1:
            yield f"{name} is there more than once: {', '.join(sorted(found))}"
    every = {f"{name}@{version}" for name, found in versions.items() for version in found}
    for rule in sorted(skipped - every):
        yield f"deny.toml skips {rule}, which is not there"
    for name in sorted(set(more) - set(versions)):
        yield f"deny.toml has an exception for {name}, which is not there"


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    for section, keys in rules.items():
        unknown = set(keys) - KNOWN.get(section, set())
        if unknown:
            sys.exit(f"deny.toml: this script does not know {section}.{', '.join(sorted(unknown))}")
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    found = list(problems(rules, json.loads(said.stdout)["packages"]))
    for problem in found:
        print(f"deny.toml: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
