#!/usr/bin/env bash
# Times steps over rows that share prefixes on one CUDA device, and with BACK=1 all arms again in the
# other order: packed rows,
# gathered suffixes, cascade, and two Python peers (packed rows; compiled flex attention under a tree
# mask). One shape and forest a call. Needs torch 2.11.0 and transformers in python3, and a folder with:
#
#   forestctl-step          the program
#   FOREST/ FOREST.json     rows, and the same by benches/learner_rows.py
#   MODEL/config.json       shapes; weights are drawn
#
#   scripts/gpu/forests.sh FOLDER MODEL FOREST TOKENS STEPS OUT [ARM...]
set -euo pipefail
folder=$1 model=$2 forest=$3 tokens=$4 steps=$5 out=$6
shift 6
arms=("$@")
[ ${#arms[@]} -gt 0 ] || arms=(rows suffix cascade peer-rows peer-tree)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
torch=$(python3 -c 'import torch,os;print(os.path.dirname(torch.__file__))')
mkdir -p "$out"

ours() {
    LD_LIBRARY_PATH=$torch/lib "$folder/forestctl-step" "$folder/$forest" --model "$folder/$model" \
        --device cuda --dtype bfloat16 --pack-tokens "$tokens" --measure "$steps" "$@"
}

theirs() {
    python3 "$here/benches/learner_peer.py" "$folder/$forest.json" "$folder/$model" \
        --pack-tokens "$tokens" --measure "$steps" "$@"
}

run() {
    local to=$out/$model-$forest-$1.jsonl
    case $1 in
        rows) ours --share-prefixes=never >>"$to" ;;
        suffix) ours --share-prefixes=always --attention suffix >>"$to" ;;
        cascade) ours --share-prefixes=always --attention cascade >>"$to" ;;
        split) ours --share-prefixes=always --attention cascade --profile-time >>"$to" ;;
        peer-rows) theirs >>"$to" ;;
        peer-tree) theirs --tree >>"$to" ;;
        peer-logits) theirs --keep-logits >>"$to" ;;
    esac
}

for arm in "${arms[@]}"; do run "$arm"; done
[ -z "${BACK-}" ] || for ((at = ${#arms[@]} - 1; at >= 0; at--)); do run "${arms[at]}"; done
