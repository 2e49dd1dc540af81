#!/usr/bin/env bash
# What a bare Debian machine with Rust and Python 3 may still lack: a C and C++ compiler (for
# zstd and the libtorch binding) and pip. Installs them where it may (root with apt-get);
# otherwise names the command that does.
set -euo pipefail

missing=()
command -v cargo >/dev/null || { echo "prerequisites: cargo is not on PATH; install Rust 1.89 or newer" >&2; exit 2; }
command -v python3 >/dev/null || missing+=(python3)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v c++ >/dev/null || missing+=(g++)
if command -v python3 >/dev/null && ! python3 -m pip --version >/dev/null 2>&1; then
    missing+=(python3-pip)
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "prerequisites: installing ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
    echo "prerequisites: missing: ${missing[*]}" >&2
    echo "  help: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 2
fi
