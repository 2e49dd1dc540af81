#!/usr/bin/env bash
# Times the learner against a Python peer on one CUDA device, the same packed rows and shapes, in the
# order A B B A. FOLDER as for forests.sh, with rows/ and rows.json.
#
#   scripts/gpu/bench.sh FOLDER MODEL TOKENS STEPS OUT
set -euo pipefail
BACK=1 exec "$(dirname "${BASH_SOURCE[0]}")/forests.sh" "$1" "$2" rows "$3" "$4" "$5" rows peer-rows
