#!/usr/bin/env bash
# What some tests need and PyPI does not have, from Debian by name.
# usage: packages.sh COMMAND:PACKAGE LIBRARY.so.N:PACKAGE …
# Where they cannot be installed, the tests that need them say so.
set -uo pipefail
mkdir -p build
there() {
    case $1 in
    *.so*) PATH=$PATH:/sbin ldconfig -p | grep -q "^\s*${1//./\\.} " ;;
    *) command -v "$1" >/dev/null ;;
    esac
}
missing=()
for pair in "$@"; do
    there "${pair%%:*}" || missing+=("${pair#*:}")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Missing for some tests: apt-get install ${missing[*]}" >&2
    exit 0
fi
echo "Installing ${missing[*]}"
{
    apt-get update -qq &&
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
} >build/apt.log 2>&1 || echo "could not install ${missing[*]}: see build/apt.log" >&2
