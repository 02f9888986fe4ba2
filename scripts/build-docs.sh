#!/bin/sh
# Makes the website of the manual, docs/ and both headers, in build/docs/html. A warning is a failure.
set -eu

cd "$(dirname "$0")/.."
command -v doxygen >/dev/null || {
    echo "build-docs: doxygen was not found; scripts/install-tools.sh doxygen" >&2
    exit 1
}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
out=build/docs
rm -rf "$out"
mkdir -p "$out"
{
    cat docs/Doxyfile
    echo "PROJECT_NUMBER = $version"
    echo "OUTPUT_DIRECTORY = $out"
} | doxygen -
for page in docs/*.md; do
    name=$(basename "$page" .md | tr - _)
    [ "$name" = README ] || [ -e "$out/html/md_docs_$name.html" ] || {
        echo "build-docs: $page is in no page" >&2
        exit 1
    }
done
echo "the manual is in $out/html/index.html"
