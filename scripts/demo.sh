#!/usr/bin/env bash
# The whole path on a real capture: six prompt groups that NeMo Gym's own classes captured from a
# sampled model, with retries, branches, compaction, and broken calls among them.
# Results stay in demo/.
set -euo pipefail
cd "$(dirname "$0")/.."

forestctl=target/release/forestctl
captures=testdata/closed-loop/seed1/staged-v2
model=testdata/closed-loop/models/tiny-qwen3
out=demo
mkdir -p "$out"

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
stage() {
    printf '\n%s%s%s\n$ forestctl %s\n' "$bold" "$1" "$plain" "${*:2}"
    "$forestctl" "${@:2}"
}

stage "1. ingest: captured calls become an archive of deltas" \
    ingest "$captures" -o "$out/run.forest" --force
stage "2. validate: every digest, length, and link is computed again" \
    validate "$out/run.forest"
stage "3. select: the calls that the harness accepted, and why some rollouts are masked" \
    select "$out/run.forest" --policy returned_history
stage "4. build rows: each selected generation carries loss exactly once" \
    build-rows "$out/run.forest" -o "$out/rows" --force
stage "5. step: one GRPO optimizer step in float32 on the CPU" \
    step "$out/rows" --model "$model" -o "$out/ckpt" --device cpu --dtype float32 --lr 1e-3 --force

printf '\n%s6. open the checkpoint in transformers%s\n' "$bold" "$plain"
if python3 -c 'import torch, transformers' 2>/dev/null; then
    python3 tests/checkpoint_opens.py "$out/ckpt" "$out/rows"
else
    echo "transformers is not installed here; where it is: python3 tests/checkpoint_opens.py $out/ckpt $out/rows"
fi

cat <<END

What lies where
  $out/run.forest   the archive: Parquet tables of calls, rollouts, and ledger, with archive.json
  $out/rows         the rows: Parquet, with rows.json
  $out/ckpt         the checkpoint: a Hugging Face model directory, optimizer state, metrics.jsonl
END
