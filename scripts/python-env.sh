#!/bin/sh
# Makes third_party/python, a virtual environment with what tools/requirements.txt lists,
# and prints the path of its interpreter. Does nothing when it is there and current.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
env=$root/third_party/python
wanted=$root/tools/requirements.txt
stamp=$env/requirements.txt

if ! cmp -s "$wanted" "$stamp"; then
    echo "making a Python environment for tools/ in third_party/python" >&2
    rm -rf "$env"
    mkdir -p "$root/third_party"
    python3 -m venv "$env" >&2
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check -r "$wanted" >&2
    cp "$wanted" "$stamp"
fi
echo "$env/bin/python"
