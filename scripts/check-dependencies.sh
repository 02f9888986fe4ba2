#!/usr/bin/env bash
# Holds the crates of Cargo.lock to deny.toml: licences, sources, crates that are banned or there twice.
#
#   scripts/check-dependencies.sh              what needs no network
#   scripts/check-dependencies.sh advisories   also known vulnerabilities and withdrawn versions
#
# cargo-deny is installed if it is missing. Vulnerabilities are listed in a git repository
# (https://github.com/rustsec/advisory-db) that must be fetched, so a machine without a way there leaves
# them out; a job with one runs the second form, each day and not only when something changes. Without
# it, this much stands in: every version is pinned with its checksum in Cargo.lock, nothing comes from
# anywhere but crates.io, and no crate that parses what a package holds contains C.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
if ! cargo deny --version 2>/dev/null | grep -qF " $version"; then
    cargo install cargo-deny --locked --version "$version" --quiet
fi
# What deny.toml allows and nothing needs any more is an error, too.
unused=()
for lint in license-not-encountered license-exception-not-encountered unmatched-skip unnecessary-skip; do
    unused+=(--deny "$lint")
done
cargo deny --locked --offline check "${unused[@]}" licenses bans sources
if [ "${1:-}" = advisories ]; then
    cargo deny --locked check advisories
fi
