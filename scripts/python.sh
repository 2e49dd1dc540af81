#!/usr/bin/env bash
# Puts the Python that reads archives in the tests where they find it. Needs Python 3.11 and no root.
#
#   scripts/python.sh            install into .deps/python (a no-op when it is already there)
#   scripts/python.sh --path     the interpreter
#
# FORESTCTL_DEPS chooses another folder than .deps, PYTHON another interpreter than python3.
# pip's own variables (index, proxy, PIP_FIND_LINKS) are honoured.
set -euo pipefail

PACKAGES=("pyarrow==26.0.1" "duckdb==2.0.1" "blake3==1.0.11")

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=${FORESTCTL_DEPS:-$root/.deps}
venv=$deps/python
interpreter=$venv/bin/python

fail() {
    printf 'python.sh: %s\n' "$1" >&2
    exit 2
}

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

is_installed() {
    [ "$(cat "$venv/installed" 2>/dev/null)" = "${PACKAGES[*]}" ] &&
        "$interpreter" -c 'import blake3, duckdb, pyarrow' 2>/dev/null
}

# Debian's Python makes a whole environment only with python3-venv, but always one without pip.
make_venv() {
    local python=${PYTHON:-python3}
    command -v "$python" >/dev/null || fail "there is no $python on PATH; install Python 3.11 or newer"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$("$python" --version) is too old; set PYTHON to a Python of 3.11 or newer"
    rm -rf "$venv"
    if "$python" -m pip --version >/dev/null 2>&1; then
        "$python" -m venv --without-pip "$venv" || fail "$python makes no virtual environment"
        PIP=("$python" -m pip)
    elif "$python" -m venv "$venv" >/dev/null 2>&1; then
        PIP=("$interpreter" -m pip)
    else
        fail "$python has neither pip nor venv; on Debian: apt-get install python3-pip, or python3-venv"
    fi
}

install_packages() {
    local site
    site=$("$interpreter" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf 'python.sh: fetching %s (80 MB) into %s\n' "${PACKAGES[*]}" "$venv" >&2
    "${PIP[@]}" install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
        --only-binary=:all: --target "$site" "${PACKAGES[@]}" >&2 ||
        fail "pip could not install ${PACKAGES[*]} (its own words stand above)"
}

case ${1-} in
"") ;;
--path)
    is_installed || fail "the packages are not installed; run scripts/python.sh first"
    printf '%s\n' "$interpreter"
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
    make_venv
    install_packages
    printf '%s\n' "${PACKAGES[*]}" >"$venv/installed"
fi
printf 'python.sh: %s is in %s\n' "${PACKAGES[*]}" "$venv" >&2
