#!/usr/bin/env bash
# What only a CUDA device can show: the same bytes twice in deterministic mode, advice when memory runs
# out, steps in several number formats. Needs FOLDER/forestctl-step, FOLDER/seed-rows (rows of
# testdata/closed-loop), and FOLDER/forest-D with FOLDER/qwen3-4b.
#
#   scripts/gpu/checks.sh FOLDER
set -uo pipefail
folder=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
LD_LIBRARY_PATH=$(python3 -c 'import torch,os;print(os.path.dirname(torch.__file__))')/lib
export LD_LIBRARY_PATH CUBLAS_WORKSPACE_CONFIG=:4096:8
model=$here/testdata/closed-loop/models/tiny-qwen3

step() { "$folder/forestctl-step" "$folder/seed-rows" --model "$model" --device cuda -q "$@"; }

for dtype in float64 float32 bfloat16; do
    for way in auto suffix cascade; do
        step -o "$work/$dtype-$way" --dtype $dtype --attention $way --format json |
            python3 -c "import json,sys; r=json.load(sys.stdin); print('$dtype $way', r['loss'], r['grad_norm'])"
    done
done
for dtype in bfloat16 float32; do
    for try in 1 2; do
        step -o "$work/same-$dtype-$try" --dtype $dtype --deterministic --steps 2 || echo "deterministic $dtype: $?"
    done
    cmp "$work/same-$dtype-1/model.safetensors" "$work/same-$dtype-2/model.safetensors" &&
        cmp "$work/same-$dtype-1/optimizer.safetensors" "$work/same-$dtype-2/optimizer.safetensors" &&
        echo "deterministic $dtype: the same bytes"
done
step -o "$work/many" --dtype bfloat16 --steps 3 --minibatches 2
python3 - "$work/many/metrics.jsonl" <<'P'
import json, sys
for line in open(sys.argv[1]):
    step = json.loads(line)
    m = step.get("metrics", step)
    print("step", m["step"], "loss", step["loss"], "clip fraction", m.get("clip_fraction"), "approx KL", m.get("approx_kl"))
P
"$folder/forestctl-step" "$folder/forest-D" --model "$folder/qwen3-4b" --device cuda --dtype bfloat16 \
    --pack-tokens 10000000 --share-prefixes=never --measure 1
echo "out of memory: exit code $?"
rm -rf "$work"
