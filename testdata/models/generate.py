"""Tiny models in the forms that the closed-loop ones do not have, with reference values.

    python -m venv venv && venv/bin/pip install torch==2.11.0 transformers==5.24.0 numpy
    venv/bin/python testdata/models/generate.py

Writes a folder per model beside this file, and reference.json: the log-probability of every token of
one sequence under each, by unmodified transformers in float32 and, as "f64", by transformers with its
casts to float32 turned into casts to float64. That those leave the numbers of the closed-loop models
as they are known is checked first.
"""

import contextlib
import json
import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

HERE = Path(__file__).parent
CLOSED_LOOP = HERE.parent / "closed-loop" / "models"

SMALL = dict(
    vocab_size=48,
    hidden_size=24,
    intermediate_size=20,
    num_hidden_layers=2,
    max_position_embeddings=256,
    bos_token_id=None,
    eos_token_id=1,
    pad_token_id=0,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=32.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)

# What is new in each: see the README of testdata.
MODELS = {
    "llama-tied-biased": LlamaConfig(
        **SMALL, num_attention_heads=4, num_key_value_heads=1, head_dim=8, rope_parameters=LLAMA3,
        attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
    ),
    "llama-plain": LlamaConfig(
        **SMALL, num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0),
    ),
    "qwen2-tied-windowed-off": Qwen2Config(
        **SMALL, num_attention_heads=3, num_key_value_heads=1, tie_word_embeddings=True,
        sliding_window=8, use_sliding_window=False, max_window_layers=1,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
    ),
    "qwen3-untied-biased-sharded": Qwen3Config(
        **SMALL, num_attention_heads=4, num_key_value_heads=2, head_dim=10, attention_bias=True,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
    ),
}


@contextlib.contextmanager
def wide():
    """Casts to float32 inside transformers become casts to float64."""
    kept = torch.float, torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float, torch.float32, torch.Tensor.float = kept


@torch.no_grad()
def logprobs(folder, ids, double):
    attention = "eager" if double else "sdpa"
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention
    )
    with wide() if double else contextlib.nullcontext():
        if double:
            model = model.double()
            # Frequencies were made in float32, whatever the model's own format.
            rotary = model.model.rotary_emb
            rotary.inv_freq, rotary.attention_scaling = inverse_frequencies(rotary)
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        every = torch.log_softmax(logits.double(), -1)
    return [0.0] + [every[t - 1, ids[t]].item() for t in range(1, len(ids))]


def inverse_frequencies(rotary):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = rotary.rope_type
    init = rotary.compute_default_rope_parameters if kind == "default" else ROPE_INIT_FUNCTIONS[kind]
    return init(rotary.config)


def check_the_widening():
    known = json.loads((CLOSED_LOOP / "reference.json").read_text())
    for name in ["tiny-qwen3", "tiny-qwen2", "tiny-llama"]:
        ids = known["sequences"]["len64"]
        found = logprobs(CLOSED_LOOP / name, ids, double=True)
        expected = known["models"][name]["len64"]["token_logprobs_f64"]
        off = max(abs(a - b) for a, b in zip(found, expected))
        print(f"{name}: {off:.1e} off the closed-loop reference")
        assert off < 1e-12


def draw(config):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        values = torch.randn_like(parameter) * (0.1 if "norm" in name else 0.3)
        parameter.data = values + 1 if "norm" in name else values
    return model


def main():
    check_the_widening()
    torch.manual_seed(20)
    ids = torch.randint(0, SMALL["vocab_size"], (96,)).tolist()
    reference = {"ids": ids, "models": {}}
    for name, config in MODELS.items():
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        sharded = name.endswith("sharded")
        draw(config).save_pretrained(folder, max_shard_size="16KB" if sharded else "5GB")
        (folder / "generation_config.json").unlink()
        reference["models"][name] = {
            "token_logprobs_f64": logprobs(folder, ids, double=True),
            "token_logprobs_hf_f32": logprobs(folder, ids, double=False),
        }
    (HERE / "reference.json").write_text(json.dumps(reference) + "\n")


main()
