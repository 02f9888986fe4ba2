#!/bin/sh
# Makes third_party/dotnet/, which git ignores, with what the tests of bindings/csharp/ need: the
# .NET Core runtime and a C# compiler, on a machine that has no .NET SDK:
#
#   scripts/fetch-dotnet.sh [FOLDER]
#
#   FOLDER/runtime/dotnet    runs programs: .NET Core 3.1, MIT-licensed, from the PyPI wheel dotnetcore2
#   FOLDER/compiler/Compile.dll  Roslyn (C# 10), MIT-licensed, whose assemblies the npm package
#                            @autorest/csharp brings, behind bindings/csharp/tests/compiler/Compile.cs
#   FOLDER/openssl/          OpenSSL 1.1, which that runtime needs to hash and newer systems lack,
#                            from the PyPI wheel psycopg2-binary; only the compiler uses it
#
# Needs python3, npm and Mono's compiler mcs (scripts/install-tools.sh python npm mono). Nothing
# of this is part of what oxpipe ships. Running the script again does nothing.
set -eu

runtime_version=3.1.23
roslyn_package=@autorest/csharp@3.0.0-beta.20220322.1
openssl_package=psycopg2-binary==2.9.3
# Raised when what the folder holds changes.
layout=1

root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$root/third_party/dotnet}
driver=$root/bindings/csharp/tests/compiler/Compile.cs

fail() {
    echo "fetch-dotnet: $*" >&2
    exit 1
}

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "fetch-dotnet: nothing is fetched for $(uname -sm); the tests of the C# binding run on Linux x86_64 alone"
    exit 0
fi

stamp="$layout $runtime_version $roslyn_package $openssl_package $(cksum <"$driver")"
if [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ]; then
    echo ".NET Core $runtime_version is already there: $folder"
    exit 0
fi

for tool in python3 npm mcs; do
    command -v $tool >/dev/null || fail "$tool was not found; run scripts/install-tools.sh python npm mono"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python=python3
if ! python3 -m pip --version >/dev/null 2>&1; then
    echo "python3 has no pip; making one in a temporary virtual environment"
    python3 -m venv "$work/venv" || fail "python3 has neither pip nor venv; install python3-pip or python3-venv"
    python=$work/venv/bin/python
fi

# pip and npm compare what they download with the registry's hashes.
wheel() {
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$work/wheels" "$@" 2>"$work/pip.log" || {
        cat "$work/pip.log" >&2
        fail "pip cannot download $1"
    }
}

echo "fetching .NET Core $runtime_version, Roslyn and OpenSSL 1.1"
wheel "dotnetcore2==$runtime_version"
# The wheel is for one version of Python, what is taken from it for any.
wheel "$openssl_package" --python-version 3.10 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64
(cd "$work" && npm pack --silent "$roslyn_package" >/dev/null) || fail "npm cannot download $roslyn_package"

out=$work/out
python3 - "$work" "$out" <<'PYTHON'
import json, pathlib, shutil, sys, tarfile, zipfile

work, out = map(pathlib.Path, sys.argv[1:])

def extract(wheel, prefix, target, wanted=lambda name: True):
    path = next((work / "wheels").glob(wheel))
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            inner = name.removeprefix(prefix)
            if inner == name or name.endswith("/") or not wanted(inner):
                continue
            file = target / inner
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(archive.read(name))

extract("dotnetcore2-*.whl", "dotnetcore2/bin/", out / "runtime")
(out / "runtime/dotnet").chmod(0o755)

openssl = out / "openssl"
extract("psycopg2_binary-*.whl", "psycopg2_binary.libs/", openssl, lambda name: name.startswith(("libssl", "libcrypto")))
# The runtime asks for it by this name; the library asks for libcrypto by the wheel's.
libssl = next(openssl.glob("libssl-*.so.1.1"))
(openssl / "libssl.so.1.1").symlink_to(libssl.name)

# Name, assembly version and file version, which the host compares with the runtime's own.
assemblies = {
    "Microsoft.CodeAnalysis.dll": ("4.0.0.0", "4.0.121.55815"),
    "Microsoft.CodeAnalysis.CSharp.dll": ("4.0.0.0", "4.0.121.55815"),
    "System.Collections.Immutable.dll": ("5.0.0.0", "5.0.20.51904"),
    "System.Reflection.Metadata.dll": ("5.0.0.0", "5.0.20.51904"),
    "System.Runtime.CompilerServices.Unsafe.dll": ("5.0.0.0", "5.0.20.51904"),
}
compiler = out / "compiler"
compiler.mkdir()
with tarfile.open(next(work.glob("autorest-csharp-*.tgz"))) as archive:
    for name in assemblies:
        with archive.extractfile(f"package/{name}") as source, open(compiler / name, "wb") as target:
            shutil.copyfileobj(source, target)

framework = ".NETCoreApp,Version=v3.1"
libraries = {
    "roslyn/4.0.1": {name: {"assemblyVersion": a, "fileVersion": f} for name, (a, f) in assemblies.items()},
    "Compile/1.0.0": {"Compile.dll": {}},
}
targets = {name: {"runtime": files} for name, files in libraries.items()}
targets["Compile/1.0.0"]["dependencies"] = {"roslyn": "4.0.1"}
(compiler / "Compile.deps.json").write_text(json.dumps({
    "runtimeTarget": {"name": framework},
    "targets": {framework: targets},
    "libraries": {name: {"type": "project", "serviceable": False, "sha512": ""} for name in libraries},
}))
(compiler / "Compile.runtimeconfig.json").write_text(json.dumps({"runtimeOptions": {
    "tfm": "netcoreapp3.1",
    "framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"},
    "configProperties": {"System.Globalization.Invariant": True},
}}))
PYTHON

# The compiler that compiles the compiler's command: Mono's own, against .NET Core's assemblies.
references=
for name in System.Private.CoreLib System.Runtime System.Console System.Linq System.Collections \
    System.Runtime.Extensions System.IO.FileSystem netstandard; do
    references="$references -r:$out/runtime/shared/Microsoft.NETCore.App/$runtime_version/$name.dll"
done
for name in Microsoft.CodeAnalysis Microsoft.CodeAnalysis.CSharp System.Collections.Immutable; do
    references="$references -r:$out/compiler/$name.dll"
done
# shellcheck disable=SC2086 # the list is meant to be split; mktemp's folders have plain names
mcs -nologo -nostdlib -noconfig $references -out:"$out/compiler/Compile.dll" "$driver"

rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
cp -RP "$out" "$folder"

# What is marked as done works: a program that this compiler makes runs on this runtime.
cat >"$work/Hello.cs" <<'CSHARP'
static class Hello { static void Main() { System.Console.WriteLine("hello"); } }
CSHARP
frameworks=$folder/runtime/shared/Microsoft.NETCore.App/$runtime_version
LD_LIBRARY_PATH=$folder/openssl "$folder/runtime/dotnet" "$folder/compiler/Compile.dll" -nologo -nostdlib \
    -r:"$frameworks/System.Private.CoreLib.dll" -r:"$frameworks/System.Runtime.dll" -r:"$frameworks/System.Console.dll" \
    -out:"$work/Hello.dll" "$work/Hello.cs" || fail "the compiler does not run on this machine"
cp "$folder/compiler/Compile.runtimeconfig.json" "$work/Hello.runtimeconfig.json"
[ "$("$folder/runtime/dotnet" "$work/Hello.dll")" = hello ] || fail "the runtime does not run on this machine"
echo "$stamp" >"$folder/stamp"
echo ".NET Core $runtime_version with a C# compiler: $folder"
