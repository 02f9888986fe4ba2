#!/usr/bin/env bash
# Runs tests under checkers of memory and threads, which must find nothing:
#
#   scripts/sanitizers.sh [c] [valgrind] [rust] [threads] [orders]     default: all of them
#
#   c         the C and C++ programs of capi_tests/, compiled with AddressSanitizer and
#             UndefinedBehaviorSanitizer; leaks of the library count as theirs
#   valgrind  the same programs under memcheck: no report, no block definitely or indirectly lost
#   rust      the library's tests, with the library itself under AddressSanitizer
#   threads   the thread pool, cancel tokens, accounts of memory, handles, batches, and examples/stress (one
#             pipeline that many threads use, open, fork, save and cancel), with the library under
#             ThreadSanitizer; tests/thread_sanitizer.supp says what it cannot see
#   orders    models of the thread pool in loom, which goes through the orders in which threads can come
#
# "rust" and "threads" want a flag of the compiler that is not a stable one: RUSTC_BOOTSTRAP is set for them
# alone. The standard library's code is not instrumented.
#
# Miri, which would check aliasing and uninitialised reads by Rust's own rules, is not part of a stable
# toolchain. In its place: `unsafe` stands where pointers come from C, where files are mapped, and in vector
# kernels; the first is what "c", "valgrind" and the call sequences of fuzz/ check, the last are
# compared element by element with portable loops in safe Rust, and run under "rust" with every end of
# every slice at a red zone.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_INCREMENTAL=0
host=$(rustc -vV | sed -n 's/^host: //p')
native=(--locked --no-default-features --features native)
# What compiles programs of C or C++ and runs them.
programs=(programs:: cpp::session cpp::text)

c() {
    OXP_CHECK_PROGRAMS=sanitizers cargo test "${native[@]}" --test capi -- "${programs[@]}" cpp::run misuse:: --skip under_valgrind
}

# Without the programs that end steps after so many milliseconds, of which valgrind takes many times that; and
# of cpp::run what does not count allocations, which valgrind has its own functions for.
valgrind() {
    OXP_CHECK_PROGRAMS=valgrind cargo test "${native[@]}" --test capi -- \
        "${programs[@]}" cpp::run_under_valgrind --skip programs::deadlines
}

# A build of its own: everything is compiled with the flag, build scripts and macros without. A cargo command
# and, behind "--", what the program gets.
instrumented() {
    local sanitizer=$1 command=$2
    shift 2
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer" \
        cargo "$command" "${native[@]}" --target "$host" "$@"
}

rust() {
    ASAN_OPTIONS=allocator_may_return_null=1 \
        instrumented address test --lib --test native_robustness --test pipeline --test packages
}

threads() {
    export TSAN_OPTIONS="halt_on_error=1:suppressions=$PWD/tests/thread_sanitizer.supp"
    instrumented thread test --lib -- workers:: control:: component::memory:: capi::threads::
    instrumented thread run --example stress -- threads 40 8
}

orders() {
    RUSTFLAGS="--cfg loom" cargo test --locked --release --manifest-path tests/loom/Cargo.toml
}

[ $# -gt 0 ] || set -- c valgrind rust threads orders
for part in "$@"; do
    case $part in
    c | valgrind | rust | threads | orders) echo "== $part"; "$part" ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done
