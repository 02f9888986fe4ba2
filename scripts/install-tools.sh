#!/bin/sh
# Sees to it that the named tools are there, and installs the missing ones with apt:
#
#   scripts/install-tools.sh cc c++ cmake ninja pkg-config python valgrind mono npm doxygen rust clippy rustfmt
#
# Rust itself is not installed, only asked for: it belongs to the user's rustup.
set -eu

fail() {
    echo "install-tools: $*" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Debian ships venv without the part that gives a new environment its pip.
has_python() {
    has python3 && python3 -c 'import ensurepip, venv' 2>/dev/null
}

packages=
need() {
    packages="$packages $1"
}

for tool in "$@"; do
    case $tool in
    cc) has cc || need "gcc libc6-dev" ;;
    c++) has c++ || need g++ ;;
    cmake) has cmake || need cmake ;;
    ninja) has ninja || need ninja-build ;;
    pkg-config) has pkg-config || need pkg-config ;;
    python) has_python || need "python3 python3-venv" ;;
    mono) has mono && has mcs || need "mono-mcs mono-runtime" ;;
    doxygen) has doxygen || need doxygen ;;
    npm) has npm || need npm ;;
    valgrind) has valgrind || need valgrind ;;
    rust) has cargo || fail "cargo was not found; install Rust from https://rustup.rs and run this again" ;;
    clippy | rustfmt)
        if ! cargo "$(echo "$tool" | sed s/rustfmt/fmt/)" --version >/dev/null 2>&1; then
            has rustup || fail "cargo has no $tool; install it beside your Rust toolchain"
            rustup component add "$tool"
        fi
        ;;
    *) fail "unknown tool \"$tool\"" ;;
    esac
done

[ -n "$packages" ] || exit 0

has apt-get || fail "please install what these Debian packages hold, then run this again:$packages"
as_root=
if [ "$(id -u)" != 0 ]; then
    has sudo || fail "neither root nor sudo; please install:$packages"
    as_root=sudo
fi
echo "installing with apt:$packages"
$as_root apt-get update -qq
# shellcheck disable=SC2086 # the list is meant to be split
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages </dev/null >/dev/null
