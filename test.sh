#!/usr/bin/env bash
# Runs every test of oxpipe. Installs what is missing on a Debian-like machine that has a
# Rust toolchain, and fetches what the tests read (into third_party/ and models/).
#
#   ./test.sh
set -euo pipefail
cd "$(dirname "$0")"

# Some tests read packages that lie beside a developer's checkout and are no part of the
# repository. They fail where the packages are absent, unless told.
left_out=
if [ -z "${OXP_FIXTURES:-}" ] && [ ! -d ../shared/fixtures ]; then
    export OXP_FIXTURES=none
    left_out="NOT RUN: tests on the packages of ../shared/fixtures, which are not there."
    echo "$left_out"
fi

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
# Every test program contains the whole library: with line tables they need three times the disk.
export CARGO_PROFILE_DEV_DEBUG=0
started=$SECONDS

step() {
    printf '\n== %s (%d:%02d)\n' "$1" $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60))
    shift
    "$@"
}

step "tools" scripts/install-tools.sh rust rustfmt clippy cc c++ cmake ninja pkg-config python valgrind mono npm doxygen
step "ONNX Runtime" scripts/fetch-onnxruntime.sh
step "ONNX node tests" scripts/fetch-onnx-tests.sh
step "real model" scripts/fetch-model.sh
step "real graphs" scripts/fetch-real-graphs.sh
step ".NET" scripts/fetch-dotnet.sh

step "model converter" "$(scripts/python-env.sh)" -m unittest discover tools
step "format" cargo fmt --check
# What the tests build on later: one lock file, everything downloaded once.
step "download crates" cargo fetch --locked

native=(--no-default-features --features native)
ort=(--no-default-features --features ort)

step "dependencies" python3 scripts/check_dependencies.py
step "lints" cargo clippy --locked --all-targets -- -D warnings
step "lints, native only" cargo clippy --locked --all-targets "${native[@]}" -- -D warnings
step "lints, ONNX Runtime only" cargo clippy --locked --all-targets "${ort[@]}" -- -D warnings
step "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --quiet
step "manual" scripts/build-docs.sh

# Symbols, CMake packages and examples are tested on the library as it ships. It is one unit to
# the compiler, so it is built on one core while the first tests take the others.
release_log=$(mktemp)
cargo build --locked --release --lib --features reserve >"$release_log" 2>&1 &
release_build=$!
trap 'kill $release_build 2>/dev/null || true; rm -f "$release_log"' EXIT
finish_release_build() {
    local status=0
    wait $release_build || status=$?
    cat "$release_log"
    return $status
}

# Compiling takes longer than testing. What needs speed runs optimised, and with both backends;
# the tests of one backend alone, and the unit tests of all code, run on code as it is.
unoptimised=(env CARGO_PROFILE_DEV_OPT_LEVEL=0 cargo test --locked)
slow=(--skip two_turns_are_the_same --skip a_decode_step_copies --skip lifetimes --skip chat_ --skip answers_of --skip examples::)
# The real model, on kernels that are not optimised.
slow+=(--skip answers_follow --skip forks_loaded --skip runs_of_a_batch --skip guesses_change --skip a_prompt_that_begins)
# What has passed is not run again; it would stay beside the programs of the next step.
remove_test_programs() {
    find "${CARGO_TARGET_DIR:-target}/debug/deps" -maxdepth 1 -type f -executable ! -name '*.so' -delete
    find "${CARGO_TARGET_DIR:-target}/debug/deps" -maxdepth 1 -name 'liboxpipe*.[ar]*' ! -name '*.rmeta' -delete
}
step "tests, native only" "${unoptimised[@]}" "${native[@]}" -- "${slow[@]}"
remove_test_programs
step "tests, ONNX Runtime only" "${unoptimised[@]}" "${ort[@]}" -- --skip answers_of --skip examples::
remove_test_programs
step "release build" finish_release_build
# Nine fuzz targets on two cores: two minutes in all.
step "tests" env OXP_FUZZ_SECONDS=27 cargo test --locked --test '*'
step "threads at once" cargo run --locked --quiet --example stress -- threads 5
step "orders of threads" scripts/sanitizers.sh orders

printf '\nEvery test passed in %d:%02d.\n' $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60))
[ -z "$left_out" ] || echo "$left_out"
