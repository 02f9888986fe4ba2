#!/bin/sh
# Fetches ONNX Runtime 1.31.1 into third_party/onnxruntime/, which git ignores:
#
#   scripts/fetch-onnxruntime.sh [FOLDER]
#
# The library comes out of the PyPI wheel, so that only python3 is needed (with pip, or
# with venv to make one). The library inside is the same whatever Python a wheel is for.
# Running the script again does nothing when the right version is there.
set -eu

version=1.31.1
# Any Python that the release has wheels for will do when there is none for ours.
other_pythons="3.12 3.13 3.11"

root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$root/third_party/onnxruntime}
case $(uname -s) in
Darwin) library=libonnxruntime.dylib ;;
*) library=libonnxruntime.so ;;
esac

fail() {
    echo "fetch-onnxruntime: $*" >&2
    exit 1
}

# Prints the version that a library says it is; fails when it does not load.
version_of() {
    python3 - "$1" <<'PYTHON'
import ctypes, sys

class ApiBase(ctypes.Structure):
    _fields_ = [
        ("GetApi", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)),
        ("GetVersionString", ctypes.CFUNCTYPE(ctypes.c_char_p)),
    ]

get_base = ctypes.CDLL(sys.argv[1]).OrtGetApiBase
get_base.restype = ctypes.POINTER(ApiBase)
print(get_base().contents.GetVersionString().decode())
PYTHON
}

command -v python3 >/dev/null || fail "python3 is needed and was not found"

if [ -e "$folder/$library" ] && [ "$(version_of "$folder/$library" 2>/dev/null)" = "$version" ]; then
    echo "ONNX Runtime $version is already there: $folder/$library"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python=python3
if ! python3 -m pip --version >/dev/null 2>&1; then
    echo "python3 has no pip; making one in a temporary virtual environment"
    python3 -m venv "$work/venv" || fail "python3 has neither pip nor venv; install python3-pip or python3-venv"
    python=$work/venv/bin/python
fi

download() {
    # pip compares the wheel with the index's hash.
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$work/wheel" "$@" "onnxruntime==$version" 2>"$work/pip.log"
}

echo "fetching the wheel of onnxruntime $version"
found=no
if download; then
    found=yes
else
    for other in $other_pythons; do
        if download --python-version "$other"; then
            found=yes
            break
        fi
    done
fi
if [ "$found" = no ]; then
    cat "$work/pip.log" >&2
    fail "pip has no wheel of onnxruntime $version for this machine ($(uname -sm))"
fi

# Takes the libraries out of the wheel, each compared with the hash in the wheel's RECORD.
mkdir -p "$work/out"
python3 - "$work/wheel" "$work/out" "$version" "$library" <<'PYTHON'
import base64, csv, hashlib, io, pathlib, sys, zipfile

wheel_folder, out, version, library = sys.argv[1:]
out = pathlib.Path(out)
wheel = next(pathlib.Path(wheel_folder).glob("onnxruntime-*.whl"))
with zipfile.ZipFile(wheel) as archive:
    record = f"onnxruntime-{version}.dist-info/RECORD"
    hashes = {row[0]: row[1] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
    names = [n for n in archive.namelist() if n.startswith("onnxruntime/capi/libonnxruntime")]
    main = [n for n in names if "providers" not in n]
    if len(main) != 1:
        sys.exit(f"{wheel.name} should hold one libonnxruntime, but holds {main}")
    for name in names:
        data = archive.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if hashes.get(name) != f"sha256={digest}":
            sys.exit(f"{name} does not match the hash in the wheel's RECORD")
        target = out / pathlib.Path(name).name
        target.write_bytes(data)
        target.chmod(0o755)
    real = pathlib.Path(main[0]).name
    links = {library}
    if library.endswith(".so"):
        links.add(f"{library}.{version.split('.')[0]}")
    for link in links - {real}:
        (out / link).symlink_to(real)
PYTHON

got=$(version_of "$work/out/$library") || fail "the library of the wheel does not load on this machine"
[ "$got" = "$version" ] || fail "the wheel of $version holds ONNX Runtime $got"

mkdir -p "$folder"
# Links first away, or cp would write through an old one.
rm -f "$folder"/libonnxruntime*
cp -RP "$work/out/." "$folder/"
echo "ONNX Runtime $version: $folder/$library"
