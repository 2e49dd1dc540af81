#!/usr/bin/env bash
# Puts the CPU parts of libtorch where the feature `torch` finds them. Needs Python 3 and no root.
#
#   scripts/libtorch.sh          install into .deps (a no-op when it is already there)
#   scripts/libtorch.sh --env    the variables that a build needs, for eval in a shell
#
# FORESTCTL_DEPS chooses another folder than .deps, PYTHON another interpreter than python3.
# pip's own variables (index, proxy, PIP_FIND_LINKS) are honoured.
#
# The wheels are taken without their dependencies: the CPU libraries of torch need nothing of the
# rest, apart from two small CUDA libraries that they name at load time. The folder `libtorch` then
# links to the CPU libraries alone, so that nothing built here asks for CUDA; `--device cuda` opens
# libtorch_cuda.so at run time, from a host that has it.
set -euo pipefail

TORCH=2.11.0
WHEELS=("torch==$TORCH" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-cupti==13.0.*")

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=${FORESTCTL_DEPS:-$root/.deps}
site=$deps/site
libtorch=$deps/libtorch

fail() {
    printf 'libtorch.sh: %s\n' "$1" >&2
    exit 2
}

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

print_env() {
    printf 'export LIBTORCH=%q\n' "$libtorch"
    printf 'export LD_LIBRARY_PATH=%q\n' "$libtorch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

is_installed() {
    [ "$(cat "$deps/installed" 2>/dev/null)" = "$TORCH" ] &&
        [ -e "$libtorch/lib/libtorch_cpu.so" ] && [ -e "$libtorch/include/torch" ]
}

# A pip that works: the interpreter's own, or that of a fresh virtual environment.
find_pip() {
    local python=${PYTHON:-python3}
    command -v "$python" >/dev/null || fail "there is no $python on PATH; install Python 3.10 to 3.14"
    "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' ||
        fail "$("$python" --version) has no torch $TORCH; set PYTHON to a Python of 3.10 to 3.14"
    if "$python" -m pip --version >/dev/null 2>&1; then
        PIP=("$python" -m pip)
    elif rm -rf "$deps/venv" && "$python" -m venv "$deps/venv" >/dev/null 2>&1; then
        PIP=("$deps/venv/bin/python" -m pip)
    else
        fail "$python has neither pip nor venv; on Debian: apt-get install python3-pip, or python3-venv"
    fi
}

install_wheels() {
    find_pip
    rm -rf "$site.new"
    printf 'libtorch.sh: fetching torch %s (0.6 GB) into %s\n' "$TORCH" "$deps" >&2
    "${PIP[@]}" install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile \
        --only-binary=:all: --target "$site.new" "${WHEELS[@]}" >&2 ||
        fail "pip could not install ${WHEELS[*]} (its own words stand above)"
    rm -rf "$site"
    mv "$site.new" "$site"
}

link_libraries() {
    local torch=$site/torch file
    [ -d "$torch/lib" ] || fail "the torch wheel holds no torch/lib; this platform is not supported"
    rm -rf "$libtorch"
    mkdir -p "$libtorch/lib"
    ln -s "$torch/include" "$libtorch/include"
    for file in "$torch"/lib/{libtorch_cpu.so,libc10.so,libtorch.so,libgomp*.so*}; do
        [ -e "$file" ] && ln -s "$file" "$libtorch/lib/"
    done
    # libtorch_cpu.so looks for its two CUDA libraries in ../../nvidia, seen from this folder.
    ln -sfn site/nvidia "$deps/nvidia"
    printf '%s\n' "$TORCH" >"$libtorch/build-version"
}

case ${1-} in
"") ;;
--env)
    is_installed || fail "libtorch is not installed; run scripts/libtorch.sh first"
    print_env
    exit
    ;;
-h | --help)
    usage
    exit
    ;;
*) fail "unknown argument $1; try --help" ;;
esac

if ! is_installed; then
    mkdir -p "$deps"
    rm -f "$deps/installed"
    install_wheels
    link_libraries
    printf '%s\n' "$TORCH" >"$deps/installed"
fi
printf 'libtorch.sh: torch %s is in %s\n' "$TORCH" "$libtorch" >&2
