#!/usr/bin/env bash
# Installs what the benches are run with into .deps/peer, a virtual environment of its own: the
# published capture package, without its dependencies (it asks for a newer Python than the parts
# measured here need), and the two that those parts import; numpy for the generator. A no-op when
# it is already there. PYTHON chooses another interpreter than python3.
set -euo pipefail

GYM=0.7.0

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
peer=${FORESTCTL_DEPS:-$root/.deps}/peer
[ "$(cat "$peer/installed" 2>/dev/null)" = "$GYM" ] && exit 0

"${PYTHON:-python3}" -m venv --clear "$peer"
pip=("$peer/bin/python" -m pip install --quiet --disable-pip-version-check)
# pip names the dependencies that are left out on purpose; only a failure matters.
"${pip[@]}" --no-deps --ignore-requires-python "nemo-gym==$GYM"
"${pip[@]}" pydantic orjson numpy
(cd "$root/benches" && "$peer/bin/python" -c 'import numpy, peer')
echo "$GYM" > "$peer/installed"
