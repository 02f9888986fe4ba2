#!/bin/sh
# Puts the ONNX project's node tests into third_party/onnx-node-tests, which git ignores:
#
#   scripts/fetch-onnx-tests.sh
#
# They are files inside the onnx wheel, which tools/requirements.txt pins.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
folder=$root/third_party/onnx-node-tests
stamp=$folder.version
version=$(sed -n 's/^onnx==//p' "$root/tools/requirements.txt")

if [ "$(cat "$stamp" 2>/dev/null)" = "$version" ]; then
    echo "the node tests of onnx $version are already there: $folder"
    exit 0
fi

python=$("$root/scripts/python-env.sh")
# Found without importing onnx, which takes a while and is not needed.
data=$("$python" -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("onnx").origin).parent / "backend/test/data/node")')
[ -d "$data/test_abs" ] || {
    echo "fetch-onnx-tests: no node tests in $data" >&2
    exit 1
}
rm -rf "$folder"
cp -R "$data" "$folder"
echo "$version" >"$stamp"
echo "the node tests of onnx $version: $folder"
