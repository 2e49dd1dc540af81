#!/usr/bin/env bash
# Puts a headless Chromium where the tests of `report` find it. Needs Debian's apt-get and no root.
#
#   scripts/browser.sh           install into .deps/browser (a no-op when it is already there)
#   scripts/browser.sh --path    the program
#
# FORESTCTL_DEPS chooses another folder than .deps, FORESTCTL_BROWSER a Chromium of your own.
# The machine's sources and apt's own settings (mirrors, proxy) are honoured.
#
# The packages are downloaded and unpacked, never installed: what the machine has is left alone.
# Without a browser these tests say that they are skipped, so that nothing else depends on it.
set -euo pipefail

PACKAGES=(chromium-headless-shell fonts-dejavu-core)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=${FORESTCTL_DEPS:-$root/.deps}
home=$deps/browser
program=$home/chromium

fail() {
    printf 'browser.sh: %s\n' "$1" >&2
    exit 2
}

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

works() {
    [ -x "$1" ] && timeout 60 "$1" --no-sandbox --dump-dom 'data:text/html,<p>it works' 2>/dev/null |
        grep -q 'it works'
}

is_installed() {
    [ "$(cat "$home/installed" 2>/dev/null)" = "${PACKAGES[*]}" ] && [ -x "$program" ]
}

# apt-get with lists and archives of its own: it needs no root, and changes nothing of the machine's.
apt() {
    apt-get -qq -o Dir::State="$home/apt" -o Dir::State::status=/var/lib/dpkg/status \
        -o Dir::Cache="$home/apt" -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" "$@"
}

unpack() {
    local package
    for package in "$home"/apt/archives/*.deb; do
        dpkg-deb --extract "$package" "$home/root" || fail "cannot unpack ${package##*/}"
    done
    rm -rf "$home/apt"
}

# Every folder that has libraries, joined by colons.
libraries() {
    find "$home/root/usr/lib" "$home/root/lib" -maxdepth 3 -name '*.so*' ! -path '*/chromium/*' \
        -printf '%h\n' 2>/dev/null | sort -u | paste -sd:
}

# Fonts that are the same everywhere, and libraries that the machine lacks.
write_program() {
    cat >"$home/fonts.conf" <<XML
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>$home/root/usr/share/fonts</dir><cachedir>$home/cache</cachedir></fontconfig>
XML
    cat >"$program" <<SH
#!/bin/sh
export LD_LIBRARY_PATH="$(libraries)\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
export FONTCONFIG_FILE=$home/fonts.conf
exec $home/root/usr/lib/chromium/chromium-headless-shell "\$@"
SH
    chmod +x "$program"
}

install_browser() {
    command -v apt-get >/dev/null || fail "there is no apt-get; set FORESTCTL_BROWSER to a Chromium"
    rm -rf "$home"
    mkdir -p "$home/apt/lists/partial" "$home/apt/archives/partial" "$home/root"
    printf 'browser.sh: fetching %s (0.1 GB) into %s\n' "${PACKAGES[*]}" "$home" >&2
    apt update >&2 || fail "apt-get could not read its sources (its own words stand above)"
    apt install --yes --download-only --no-install-recommends --reinstall "${PACKAGES[@]}" >&2 ||
        fail "apt-get could not fetch ${PACKAGES[*]} (its own words stand above)"
    unpack
    write_program
    works "$program" || fail "the browser does not start: $("$program" --no-sandbox --dump-dom about:blank 2>&1 | head -n 3)"
    printf '%s\n' "${PACKAGES[*]}" >"$home/installed"
}

case ${1-} in
"") ;;
--path)
    if [ -n "${FORESTCTL_BROWSER-}" ]; then
        printf '%s\n' "$FORESTCTL_BROWSER"
    else
        is_installed || fail "no browser is installed; run scripts/browser.sh first"
        printf '%s\n' "$program"
    fi
    exit
    ;;
-h | --help)
    usage
    exit
    ;;
*) fail "unknown argument $1; try --help" ;;
esac

if [ -z "${FORESTCTL_BROWSER-}" ]; then
    is_installed || install_browser
    printf 'browser.sh: Chromium is in %s\n' "$home" >&2
fi
