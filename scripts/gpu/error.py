"""Gradients in bfloat16 against float32: error.py FOLDER FOREST [LAYERS]

Draws a model of a few layers, takes the gradients of one batch with FOLDER/forestctl-step in float32
row by row, and in bfloat16 as packed rows, gathered suffixes and a cascade, and with the Python peer.
Prints for each the distance from float32 over its norm: of all gradients, and the worst tensor.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benches"))
import learner_peer as peer

folder, forest = Path(sys.argv[1]), sys.argv[2]
layers = int(sys.argv[3]) if len(sys.argv) > 3 else 4
work = Path(tempfile.mkdtemp())
torch.manual_seed(1)
config = AutoConfig.from_pretrained(folder / "qwen3-0.6b")
config.num_hidden_layers = layers
if getattr(config, "layer_types", None):
    config.layer_types = config.layer_types[:layers]
AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(work / "model")
library = os.path.join(os.path.dirname(torch.__file__), "lib")


def ours(name, *arguments, steps=30):
    """Enough steps, which change nothing, for dense blocks to pay."""
    done = subprocess.run(
        [folder / "forestctl-step", folder / forest, "--model", work / "model", "-o", work / name,
         "--device", "cuda", "--lr", "0", "--weight-decay", "0", "--max-grad-norm", "1e9", "--steps",
         str(steps), "--dump-gradients", work / f"{name}.safetensors", "--format", "json", *arguments],
        env={**os.environ, "LD_LIBRARY_PATH": library}, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{name} ended with {done.returncode}")
    report = json.loads(done.stdout)
    gradients = load_file(work / f"{name}.safetensors")
    return report["loss"], {key: value.double() for key, value in gradients.items()}


def theirs():
    device = torch.device("cuda")
    model = AutoModelForCausalLM.from_pretrained(work / "model", dtype=torch.bfloat16,
                                                 attn_implementation="varlen").to(device)
    rows = json.load(open(folder / f"{forest}.json"))
    tokens = sum(len(row["targets"]) for row in rows)
    sums = {name: torch.zeros_like(p, dtype=torch.float32) for name, p in model.named_parameters()}
    for bunch in peer.packs(rows, 65536):
        pack = peer.Pack(bunch, device)
        hidden = pack.hidden(model)
        leaf = hidden.detach().requires_grad_()
        for at in pack.chunks():
            logprobs = pack.logprobs(model, leaf, at)
            advantage = pack.advantages[at:at + peer.CHUNK]
            (-(advantage * (logprobs - logprobs.detach()).exp()).sum() / tokens).backward()
        hidden.backward(leaf.grad)
        for name, p in model.named_parameters():
            sums[name] += p.grad
            p.grad = None
    return None, {name: value.double().cpu() for name, value in sums.items()}


bf16 = ["--dtype", "bfloat16", "--pack-tokens", "65536"]
loss, exact = ours("float32", "--dtype", "float32", "--pack-tokens", "0", steps=1)
print(json.dumps({"float32": loss, "norm": sum(float(g.norm() ** 2) for g in exact.values()) ** 0.5}))
for name, take in {
    "rows": lambda: ours("rows", *bf16, "--share-prefixes=never", "--attention", "suffix"),
    "rows dense": lambda: ours("dense", *bf16, "--share-prefixes=never", "--attention", "cascade"),
    "suffix": lambda: ours("suffix", *bf16, "--share-prefixes=always", "--attention", "suffix"),
    "cascade": lambda: ours("cascade", *bf16, "--share-prefixes=always", "--attention", "cascade"),
    "cascade flash": lambda: ours("flash", *bf16, "--share-prefixes=always", "--attention", "cascade",
                                  steps=1),
    "peer": theirs,
}.items():
    loss, found = take()
    squares = {key: float((found[key] - exact[key]).norm() ** 2) for key in exact}
    norm = sum(float(value.norm() ** 2) for value in exact.values()) ** 0.5
    worst = max(exact, key=lambda key: squares[key] ** 0.5 / float(exact[key].norm()))
    print(json.dumps({
        "arm": name, "loss": loss, "error": sum(squares.values()) ** 0.5 / norm, "worst": worst,
        "worst_error": squares[worst] ** 0.5 / float(exact[worst].norm())}), flush=True)
