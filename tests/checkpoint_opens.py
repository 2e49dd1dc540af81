#!/usr/bin/env python3
"""Opens a checkpoint of `forestctl step` in transformers and compares log-probabilities.

    tests/checkpoint_opens.py CKPT ROWS [--forestctl target/release/forestctl]

A second step from the checkpoint's model files in float64 tells, through --dump-logprobs, what
forestctl makes of the written weights; transformers computes the same tokens in float32 and
float64 from the checkpoint. Exit status: 0 when they agree, 1 when they do not, 77 (said aloud) when this Python has
no torch, transformers or safetensors.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77

# transformers computes norms and rotary tables in float32 even when the weights are float64.
TOLERANCE = 2e-5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("--forestctl", default="target/release/forestctl")
    args = parser.parse_args()
    try:
        import torch
        from safetensors.torch import load_file
        from transformers import AutoModelForCausalLM
    except (ImportError, OSError) as error:
        print(f"checkpoint_opens: skipped, as this Python cannot import what it needs: {error}")
        return SKIPPED

    with tempfile.TemporaryDirectory() as folder:
        # The model alone: with its optimizer state, a step would continue from the float32 originals
        # of bfloat16 weights.
        model, dump = pathlib.Path(folder) / "model", pathlib.Path(folder) / "logprobs.safetensors"
        model.mkdir()
        for file in [args.checkpoint / "config.json", *args.checkpoint.glob("model*.safetensors*")]:
            (model / file.name).symlink_to(file.resolve())
        command = [args.forestctl, "--quiet", "step", args.rows, "--model", model]
        command += ["--output", f"{folder}/next", "--dtype", "float64", "--dump-logprobs", dump]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        dumped = load_file(dump)
    rows = sorted({name.rsplit("/", 1)[0] for name in dumped})

    worst, tokens = 0.0, 0
    for dtype in (torch.float32, torch.float64):
        model, loading = AutoModelForCausalLM.from_pretrained(
            args.checkpoint, dtype=dtype, output_loading_info=True
        )
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            if loading[kind]:
                print(f"checkpoint_opens: {kind}: {sorted(loading[kind])}")
                return 1
        model.eval()
        for row in rows:
            ids, positions = dumped[f"{row}/input_ids"], dumped[f"{row}/positions"]
            with torch.no_grad():
                logits = model(ids[None]).logits[0]
            logprobs = logits.log_softmax(-1)[positions - 1, ids[positions]]
            difference = (logprobs.double() - dumped[f"{row}/previous"]).abs().max().item()
            worst, tokens = max(worst, difference), tokens + len(positions)
    print(
        f"checkpoint_opens: {len(rows)} rows, {tokens} log-probabilities in float32 and float64, "
        f"greatest difference {worst:.1e} (at most {TOLERANCE:.0e} expected)"
    )
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
