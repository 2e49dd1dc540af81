#!/usr/bin/env python3
"""Several GRPO optimizer steps over one batch, in JAX and float64, for `tests/it/step/schedule.rs`.

    testdata/many-steps/generate.py > testdata/many-steps/expected.json

Needs jax (0.10.2 wrote the file), numpy and safetensors; runs on the processor in half a minute. Reads
`../closed-loop`: rows, advantages, the policy tiny-qwen3 and the reference tiny-qwen3-ref. Nothing here
shares code or libraries with forestctl: gradients are JAX's own of the loss as it is written down.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

jax.config.update("jax_enable_x64", True)

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent / "closed-loop"
LAYERS, HEADS, KV_HEADS, DIM, THETA, EPS = 2, 4, 2, 16, 1e6, 1e-6
CLIP, BETAS, ADAM_EPS, DECAY, MAX_NORM = 0.2, (0.9, 0.999), 1e-8, 0.01, 1.0
RUNS = [
    {"name": "ten", "lr": 2e-4, "steps": 10, "minibatches": 1, "kl": 0.0},
    {"name": "ten_kl", "lr": 2e-4, "steps": 10, "minibatches": 1, "kl": 0.1},
    {"name": "minibatches", "lr": 2e-4, "steps": 2, "minibatches": 5, "kl": 0.1},
]


def weights(name):
    file = load_file(DATA / "models" / name / "model.safetensors")
    return {key: jnp.asarray(value, jnp.float64) for key, value in file.items()}


def rms_norm(x, weight):
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + EPS) * weight


def rotate(x, cos, sin):
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def logprobs(w, ids):
    """Log-probability of every token after the ones before it, `[rows][length - 1]`."""
    rows, length = ids.shape
    angles = np.outer(np.arange(length), THETA ** (-np.arange(0, DIM, 2) / DIM))
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    x = w["model.embed_tokens.weight"][ids]
    causal = np.tril(np.ones((length, length), bool))
    for i in range(LAYERS):
        get = lambda part: w[f"model.layers.{i}.{part}.weight"]
        y = rms_norm(x, get("input_layernorm"))
        heads = lambda part: (y @ get(f"self_attn.{part}_proj").T).reshape(rows, length, -1, DIM)
        q = rotate(rms_norm(heads("q"), get("self_attn.q_norm")), cos, sin)
        k = rotate(rms_norm(heads("k"), get("self_attn.k_norm")), cos, sin)
        k, v = (jnp.repeat(t, HEADS // KV_HEADS, 2) for t in (k, heads("v")))
        scores = jnp.einsum("rqhd,rkhd->rhqk", q, k) / np.sqrt(DIM)
        scores = jnp.where(causal, scores, -jnp.inf)
        mixed = jnp.einsum("rhqk,rkhd->rqhd", jax.nn.softmax(scores, -1), v)
        x = x + mixed.reshape(rows, length, -1) @ get("self_attn.o_proj").T
        y = rms_norm(x, get("post_attention_layernorm"))
        x = x + (jax.nn.silu(y @ get("mlp.gate_proj").T) * (y @ get("mlp.up_proj").T)) @ get(
            "mlp.down_proj").T
    logits = rms_norm(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T
    chosen = jax.nn.log_softmax(logits[:, :-1], -1)
    return jnp.take_along_axis(chosen, ids[:, 1:, None], -1)[..., 0]


def batch():
    stored = load_file(DATA / "seed1/expected/rows_returned_history.safetensors")
    told = json.loads((DATA / "seed1/expected/expected.json").read_text())
    told = told["policies"]["returned_history"]
    case = ("filter=none;masked_reward_policy=exclude;leave_one_out=true;normalize=true;clip=none")
    advantages = dict(zip(told["advantages"]["rollouts"],
                          told["advantages"]["cases"][case]["advantage"]))
    ends = stored["row_offsets"]
    length = int(max(ends[1:] - ends[:-1]))

    def padded(name):
        out = np.zeros((len(ends) - 1, length), stored[name].dtype)
        for i in range(len(ends) - 1):
            out[i, :ends[i + 1] - ends[i]] = stored[name][ends[i]:ends[i + 1]]
        return out

    owners = [row["rollout_id"] for row in told["rows"]]
    return {
        "ids": padded("input_ids"), "mask": padded("loss_mask")[:, 1:].astype(bool),
        "generation": padded("generation_logprobs")[:, 1:].astype(np.float64),
        "advantage": np.array([advantages[owner] for owner in owners])[:, None], "owners": owners,
    }


def surrogate(w, data, previous, reference, mask, kl):
    c = logprobs(w, data["ids"])
    ratio = jnp.exp(jnp.where(mask, c - previous, 0.0))
    clamped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    a = data["advantage"]
    free, clipped = -a * ratio, -a * clamped
    # An inner derivative of both arms at a ratio of 1 is the same, so a tie decides nothing.
    actor = jnp.maximum(free, clipped)
    d = jnp.where(mask, reference - c, 0.0)
    penalty = (jnp.exp(d) - 1 - d) * jnp.exp(c - jax.lax.stop_gradient(c))
    norm = mask.sum() + 1e-8
    mean = lambda x: jnp.where(mask, x, 0.0).sum() / norm
    drift = jnp.where(mask, c - previous, 0.0)
    told = {
        "probs_ratio": mean(ratio), "probs_ratio_clamped": mean(clamped),
        "probs_ratio_min": jnp.where(mask, ratio, jnp.inf).min(),
        "probs_ratio_max": jnp.where(mask, ratio, -jnp.inf).max(),
        "clip_fraction": mean((clipped > free).astype(float)),
        "approx_kl": mean(jnp.exp(drift) - 1 - drift), "kl_penalty": mean(penalty),
        "actor_loss": mean(actor),
        "token_mult_prob_error": mean(jnp.exp(jnp.abs(data["generation"] - previous))),
        "approx_entropy": -mean(jnp.exp(jnp.where(mask, c - data["generation"], 0.0)) * c),
    }
    return mean(actor) + kl * mean(penalty), told


def shares(owners, count):
    """Rollouts in row order, in contiguous shares whose sizes differ by one at most."""
    names = list(dict.fromkeys(owners))
    for share in np.array_split(np.array(names), count):
        yield np.isin(owners, share)


def run(spec, data, value_and_grad):
    w = weights("tiny-qwen3")
    previous = logprobs(w, data["ids"])
    reference = logprobs(weights("tiny-qwen3-ref"), data["ids"])
    first = {k: jnp.zeros_like(v) for k, v in w.items()}
    second = dict(first)
    steps = []
    for epoch in range(spec["steps"]):
        for minibatch, share in enumerate(shares(data["owners"], spec["minibatches"])):
            mask = data["mask"] & share[:, None]
            (loss, told), grad = value_and_grad(w, data, previous, reference, mask, spec["kl"])
            norm = float(jnp.sqrt(sum((g * g).sum() for g in grad.values())))
            scale, t = min(1.0, MAX_NORM / (norm + 1e-6)), len(steps) + 1
            for k, g in grad.items():
                g = g * scale
                first[k] = BETAS[0] * first[k] + (1 - BETAS[0]) * g
                second[k] = BETAS[1] * second[k] + (1 - BETAS[1]) * g * g
                m, v = first[k] / (1 - BETAS[0] ** t), second[k] / (1 - BETAS[1] ** t)
                w[k] = w[k] * (1 - spec["lr"] * DECAY) - spec["lr"] * m / (jnp.sqrt(v) + ADAM_EPS)
            steps.append({
                "step": t, "epoch": epoch + 1, "minibatch": minibatch + 1, "loss": float(loss),
                "grad_norm": norm, "clip_coefficient": scale, "loss_tokens": int(mask.sum()),
                **{k: float(v) for k, v in told.items()},
            })
    summary = {k: {"norm": float(jnp.sqrt((v * v).sum())), "sum": float(v.sum())}
               for k, v in sorted(w.items())}
    return {**spec, "each": steps, "weights": summary}


def main():
    data = batch()
    arrays = {k: v for k, v in data.items() if k != "owners"}
    graded = jax.jit(jax.value_and_grad(
        lambda w, ids, mask_, a, g, p, r, mask, kl: surrogate(
            w, {"ids": ids, "mask": mask_, "advantage": a, "generation": g}, p, r, mask, kl),
        has_aux=True))
    call = lambda w, d, p, r, mask, kl: graded(
        w, arrays["ids"], arrays["mask"], arrays["advantage"], arrays["generation"], p, r, mask, kl)
    print(json.dumps({"runs": [run(spec, data, call) for spec in RUNS]}, indent=1))


if __name__ == "__main__":
    main()
