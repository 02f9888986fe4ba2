#!/usr/bin/env bash
# Builds and runs the fuzz targets of fuzz/ on the stable toolchain, without cargo-fuzz:
#
#   scripts/fuzz.sh list                       the targets
#   scripts/fuzz.sh build                      all of them
#   scripts/fuzz.sh run TARGET [SECONDS] ...   from the committed corpus and what was found before;
#                                              what follows goes to libFuzzer
#   scripts/fuzz.sh check TARGET FILE...       runs these inputs alone
#   scripts/fuzz.sh shrink TARGET FILE         the smallest input that fails as this one
#   scripts/fuzz.sh keep TARGET                puts a smallest corpus into fuzz/corpus/TARGET
#
# Inputs that bring something new are kept in fuzz/found/TARGET, those that fail in fuzz/artifacts/TARGET.
# AddressSanitizer is used where the toolchain ships its runtime. Its flag is not a stable one, so
# RUSTC_BOOTSTRAP is set for this build alone: the compiler is still the stable one.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

host=$(rustc -vV | sed -n 's/^host: //p')
binaries=${CARGO_TARGET_DIR:-$PWD/target}/$host/release

targets() {
    sed -n 's/^path = "fuzz_targets\/\(.*\)\.rs"/\1/p' Cargo.toml
}

build() {
    local flags=()
    if compgen -G "$(rustc --print sysroot)/lib/rustlib/$host/lib/librustc*rt.asan.a" >/dev/null; then
        flags+=(-Zsanitizer=address)
    else
        echo "fuzz: this toolchain has no AddressSanitizer; the targets go without" >&2
    fi
    # What cargo-fuzz sets, too.
    flags+=(
        -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
        -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
        -Cforce-frame-pointers --cfg fuzzing
    )
    # With a target named, build scripts and macros are built without the flags.
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="${flags[*]}" cargo build --locked --release --target "$host" --bins
}

# What is larger than half a gigabyte is refused, as by a system without memory, and must be taken
# for that; the stack that has grown is no leak.
export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1:max_allocation_size_mb=512:detect_stack_use_after_return=0}
limits=(-timeout=10 -rss_limit_mb=3000 -malloc_limit_mb=100000)

fuzzer() {
    local target=$1
    shift
    mkdir -p "artifacts/$target" "found/$target"
    # The words that the readers know.
    local sources=../src/text words=found/$target.words
    [[ $target != package_* ]] || sources=../src/package
    grep -rohE '"[A-Za-z][A-Za-z0-9_.]{2,30}"' $sources | sort -u >"$words"
    "$binaries/$target" "${limits[@]}" -dict="$words" -artifact_prefix="artifacts/$target/" "$@"
}

corpora() {
    echo "found/$1"
    [ ! -d "corpus/$1" ] || echo "corpus/$1"
}

command=${1:-help}
shift || true
case $command in
list) targets ;;
build) build ;;
run)
    target=$1 seconds=${2:-60}
    shift $(($# > 1 ? 2 : 1))
    mkdir -p found
    "$binaries/seeds" found "$target"
    # shellcheck disable=SC2046 # folders of ours, without spaces
    fuzzer "$target" -max_total_time="$seconds" -print_final_stats=1 "$@" $(corpora "$target")
    ;;
check)
    target=$1
    shift
    fuzzer "$target" "$@"
    ;;
shrink) fuzzer "$1" -minimize_crash=1 -max_total_time=60 "$2" ;;
keep)
    rm -rf "corpus/$1.new"
    mkdir -p "corpus/$1.new"
    # How often an edge is taken does not count: that alone would be thousands of files.
    # shellcheck disable=SC2046
    fuzzer "$1" -set_cover_merge=1 -use_counters=0 "corpus/$1.new" $(corpora "$1")
    rm -rf "corpus/$1"
    mv "corpus/$1.new" "corpus/$1"
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "../scripts/$(basename "$0")"
    exit 2
    ;;
esac
