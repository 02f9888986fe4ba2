#!/usr/bin/env bash
# The main job, from nothing: builds oxpipe, fetches ONNX Runtime and a small language
# model, and lets a C program (examples_c/chat.c) ask it a question on every mix of
# backends. The second time only the question is left to do.
#
#   ./demo.sh ["Another question?"]
set -euo pipefail
cd "$(dirname "$0")"

question=${1:-What is the capital of France?}
package=models/smollm2-135m-instruct

scripts/install-tools.sh rust cc python
scripts/fetch-onnxruntime.sh
scripts/fetch-model.sh
cargo build --locked --release --lib --features reserve
scripts/build-examples.sh

export ORT_DYLIB_PATH=$PWD/third_party/onnxruntime/libonnxruntime.so
ids_of_first=
ids=$(mktemp)
trap 'rm -f "$ids"' EXIT

printf '\n%s\n' "$question"
for embedding in native ort; do
    for decoder in native ort; do
        printf '\nembedding on %s, decoder on %s:\n' "$embedding" "$decoder"
        build/chat "$package" --backend "embedding=$embedding" --backend "decoder=$decoder" \
            --ids "$ids" "$question"
        echo "token ids: $(cat "$ids")"
        if [ -z "$ids_of_first" ]; then
            ids_of_first=$(cat "$ids")
        elif [ "$ids_of_first" != "$(cat "$ids")" ]; then
            echo "demo: these are not the ids of the first answer" >&2
            exit 1
        fi
    done
done
printf '\nThe four answers have the same token ids. To go on talking: build/chat %s\n' "$package"
