#!/bin/sh
# Compiles examples_c/ against the release library into build/, which git ignores:
#
#   cargo build --release --lib --features reserve && scripts/build-examples.sh
#
# The programs find the library through a link beside them; CC, CFLAGS, CXX and CXXFLAGS are
# heeded. Those in C++ (NAME.cpp becomes NAME_cpp) are left out where there is no compiler.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
library=${CARGO_TARGET_DIR:-$root/target}/release/liboxpipe.so
[ -e "$library" ] || {
    echo "build-examples: $library is missing; run cargo build --release --lib --features reserve" >&2
    exit 1
}
mkdir -p build
ln -sf "$library" build/liboxpipe.so
ln -sf "$library" build/liboxpipe.so.0
for source in examples_c/*.c; do
    program=build/$(basename "$source" .c)
    # CFLAGS is meant to be split, $ORIGIN to reach the loader as it is.
    # shellcheck disable=SC2016,SC2086
    ${CC:-cc} -std=c99 -O2 -Wall -Wextra ${CFLAGS:-} -Iinclude "$source" -o "$program" \
        -Lbuild -loxpipe -lm -Wl,-rpath,'$ORIGIN'
done
command -v "${CXX:-c++}" >/dev/null || exit 0
for source in examples_c/*.cpp; do
    program=build/$(basename "$source" .cpp)_cpp
    # shellcheck disable=SC2016,SC2086
    ${CXX:-c++} -std=c++17 -O2 -Wall -Wextra ${CXXFLAGS:-} -Iinclude "$source" -o "$program" \
        -Lbuild -loxpipe -lpthread -Wl,-rpath,'$ORIGIN'
done
