#!/bin/sh
# Puts the ONNX project's test cases into third_party/onnx-node-tests, which git ignores:
#
#   scripts/fetch-onnx-tests.sh
#
# The onnx package makes most of them in code; tools/requirements.txt pins its version, and that of what
# it rounds with.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
folder=$root/third_party/onnx-node-tests
stamp=$folder.version
writer=$root/tools/onnx_node_tests.py
version="$(sed -n 's/^onnx==//p' "$root/tools/requirements.txt") $(cat "$writer" "$root/tools/requirements.txt" | cksum)"

if [ "$(cat "$stamp" 2>/dev/null)" = "$version" ]; then
    echo "the ONNX test cases are already there: $folder"
    exit 0
fi

python=$("$root/scripts/python-env.sh")
rm -rf "$folder" "$folder.new"
"$python" -W ignore "$writer" "$folder.new"
mv "$folder.new" "$folder"
echo "$version" >"$stamp"
