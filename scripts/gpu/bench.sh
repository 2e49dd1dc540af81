#!/usr/bin/env bash
# Times the learner against a Python peer on one CUDA device, the same rows and shapes, in the order
# A B B A. Needs torch 2.11.0 and transformers in python3, and a folder with:
#
#   forestctl-step      the program
#   rows/ rows.json     rows, and the same by benches/learner_rows.py
#   MODEL/config.json   shapes; weights are drawn
#
#   scripts/gpu/bench.sh FOLDER MODEL TOKENS STEPS OUT
set -euo pipefail
folder=$1 model=$2 tokens=$3 steps=$4 out=$5
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
torch=$(python3 -c 'import torch,os;print(os.path.dirname(torch.__file__))')
mkdir -p "$out"

ours() {
    LD_LIBRARY_PATH=$torch/lib "$folder/forestctl-step" "$folder/rows" --model "$folder/$model" \
        --device cuda --dtype bfloat16 --pack-tokens "$tokens" --measure "$steps" \
        >>"$out/$model-$tokens-forestctl.jsonl"
}

theirs() {
    python3 "$here/benches/learner_peer.py" "$folder/rows.json" "$folder/$model" \
        --pack-tokens "$tokens" --measure "$steps" >>"$out/$model-$tokens-peer.jsonl"
}

ours
theirs
theirs
ours
