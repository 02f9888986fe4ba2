#!/usr/bin/env bash
# Compares oxpipe with onnxruntime-genai and llama.cpp on a random-weight model: builds the
# library, makes a Python environment with the peers (llama.cpp is compiled for this CPU) and
# the models (11 GB for all formats), then measures. Needs a C and a C++ compiler, cmake, and
# Python 3.10 or later.
#
#   benches/compare/run.sh                             every format, 2 threads
#   benches/compare/run.sh --formats int4 --rounds 3   one format
#   benches/compare/run.sh --shape toy --threads 1 --formats f32 --commands "decode 16 512"
#   benches/compare/run.sh --engines oxpipe,oxpipe-ort without peers
#
# OXP_COMPARE is where environment and models are kept; default build/compare.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=${OXP_COMPARE:-$root/build/compare}
mkdir -p "$folder"

if ! cmp -s "$here/requirements.txt" "$folder/venv/requirements.txt"; then
    rm -rf "$folder/venv"
    python3 -m venv "$folder/venv"
    CMAKE_ARGS=-DGGML_NATIVE=ON "$folder/venv/bin/pip" install --quiet \
        --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$folder/venv/requirements.txt"
fi
if [ -z "${OXPIPE_LIBRARY:-}" ]; then
    cargo build --manifest-path "$root/Cargo.toml" --locked --release --lib
    export OXPIPE_LIBRARY=$root/target/release/liboxpipe.so
fi
ort=$(ls "$folder"/venv/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.* | head -1)
export ORT_DYLIB_PATH=${ORT_DYLIB_PATH:-$ort}
exec "$folder/venv/bin/python" "$here/compare.py" --folder "$folder/models" "$@"
