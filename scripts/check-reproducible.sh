#!/usr/bin/env bash
# Builds the release library twice from the current commit, in folders of different names, and compares
# the bytes. The compiler is told to leave the folders' names out, as whoever publishes a build should:
#
#   scripts/check-reproducible.sh [FOLDER]     default: a temporary one
#
# The same commit, compiler (rust-toolchain or rustc -vV), linker and flags give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

place=${1:-$(mktemp -d)}
mkdir -p "$place"
place=$(cd "$place" && pwd)

build() {
    local name=$1 folder=$place/$1
    rm -rf "$folder"
    mkdir -p "$folder"
    git archive HEAD | tar -x -C "$folder"
    local remap=(
        "--remap-path-prefix=$folder=/oxpipe"
        "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
        "--remap-path-prefix=$(rustc --print sysroot)=/rust"
    )
    (cd "$folder" && CARGO_TARGET_DIR=$folder/target RUSTFLAGS="${remap[*]}" cargo build --locked --release --lib --features reserve --quiet)
    mv "$folder/target/release/liboxpipe.so" "$place/$name.so"
    mv "$folder/target/release/liboxpipe.a" "$place/$name.a"
    rm -rf "$folder"
}

build first
build the-second-one
for kind in so a; do
    sha256sum "$place/first.$kind" "$place/the-second-one.$kind"
    cmp "$place/first.$kind" "$place/the-second-one.$kind"
done
if strings "$place/first.so" | grep -F "$place"; then
    echo "check-reproducible: the library names the folder in which it was built" >&2
    exit 1
fi
rm -f "$place"/{first,the-second-one}.{so,a}
echo "twice the same bytes"
