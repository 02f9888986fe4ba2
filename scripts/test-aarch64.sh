#!/usr/bin/env bash
# Compiles the library for 64-bit ARM Linux and runs its unit tests in emulation: on a Debian-like
# x86-64 machine, as root, since a rustup toolchain may have no standard library for ARM. Not a part
# of ./test.sh: the first run takes a quarter of an hour and 2 GB.
#
#   scripts/test-aarch64.sh                  the unit tests
#   scripts/test-aarch64.sh packed_weights   those whose name has this
#
# It makes a small Debian in third_party/aarch64 with a Rust compiler, the standard library and a C
# compiler for ARM, and compiles in there. ONNX Runtime has no part in it: the native runtime alone.
set -euo pipefail

if [ "$(id -u)" != 0 ]; then
    echo "test-aarch64: needs root, for chroot" >&2
    exit 1
fi
# With mounts of its own, which end with it however it ends: one that is left behind would have whoever
# deletes this checkout delete Cargo's home too.
if [ "${OXPIPE_OWN_MOUNTS:-}" != "$$" ]; then
    exec env OXPIPE_OWN_MOUNTS=$$ unshare --mount --propagation private "$0" "$@"
fi
cd "$(dirname "$0")/.."

# The first Debian whose compiler is new enough for Cargo.toml's rust-version.
suite=trixie
root=$PWD/third_party/aarch64/root
target=aarch64-unknown-linux-gnu

if [ ! -e "$root/.complete" ]; then
    if ! command -v debootstrap >/dev/null || ! command -v qemu-aarch64-static >/dev/null; then
        apt-get install -y debootstrap qemu-user-static
    fi
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase "$suite" "$root"
    chroot "$root" dpkg --add-architecture arm64
    chroot "$root" apt-get update
    DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y --no-install-recommends \
        rustc-web cargo-web libstd-rust-web-dev:arm64 \
        gcc g++ gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross
    cp "$(command -v qemu-aarch64-static)" "$root/usr/bin/"
    printf '#!/bin/sh\nexec qemu-aarch64-static -L /usr/aarch64-linux-gnu "$@"\n' >"$root/usr/bin/emulate"
    chmod +x "$root/usr/bin/emulate"
    touch "$root/.complete"
fi

# What is compiled in there is what lies here, with the crates that are downloaded here.
cargo fetch --locked
cargo_home=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$root/src" "$root/cargo"
mount --bind "$PWD" "$root/src"
mount --bind "$cargo_home" "$root/cargo"

linker=aarch64-linux-gnu-gcc
chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/bin:/bin \
    CARGO_HOME=/cargo CARGO_NET_OFFLINE=true CARGO_TARGET_DIR=/src/target/aarch64 RUSTC=/usr/bin/rustc \
    CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$linker \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=emulate CC_aarch64_unknown_linux_gnu=$linker \
    sh -c 'cd /src && exec cargo test --locked --target "$@"' sh \
    "$target" --no-default-features --features native --lib -- "$@"
