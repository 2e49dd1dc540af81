"""A GRPO step over packed rows in transformers, timed as `forestctl step --measure` times its own.

    learner_peer.py ROWS.json MODEL --pack-tokens 16384 --measure 8 [--tree] [--keep-logits]

What a careful user writes: flash attention of variable length over packed rows, gradient
checkpointing of every layer, the head in chunks over loss tokens alone, bfloat16 weights with
float32 gradients, main weights and moments, and the fused AdamW. Weights are drawn. ROWS.json is what
`learner_rows.py` writes. With `--tree`, prefixes that rows share are computed once, under the compiled
mask of flex attention; the first step then compiles. `--keep-logits` trains on the logits of whole packs, as
the usual loss of a language model does. Prints a line of JSON per step.
"""

import argparse
import json
import time

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

CHUNK = 1024
BOUNDS = {}


def varlen(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))
    ends, longest = BOUNDS["ends"], BOUNDS["longest"]
    out = torch.ops.aten._flash_attention_forward(query, key, value, ends, ends, longest, longest,
                                                  0.0, True, False)[0]
    return out.unsqueeze(0), None


flex = torch.compile(flex_attention, dynamic=False)


def tree(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    out = flex(query, key, value, block_mask=BOUNDS["mask"], enable_gqa=True)
    return out.transpose(1, 2), None


AttentionInterface.register("varlen", varlen)
AttentionInterface.register("tree", tree)


def packs(rows, tokens):
    """First fit, longest rows first."""
    bins = []
    for row in sorted(rows, key=lambda row: -len(row["ids"])):
        for pack in bins:
            if sum(len(r["ids"]) for r in pack) + len(row["ids"]) <= tokens:
                pack.append(row)
                break
        else:
            bins.append([row])
    return bins


def shared(a, b):
    """Tokens that both begin with."""
    return next((at for at, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def trees(rows, tokens):
    """Rows in lexical order, as many at a time as fit with what they share counted once."""
    bins, size, before = [], 0, []
    for row in sorted(rows, key=lambda row: row["ids"]):
        ids = row["ids"]
        common = shared(before, ids)
        if bins and size + len(ids) - common <= tokens:
            bins[-1].append(row)
            size += len(ids) - common
        else:
            bins.append([row])
            size = len(ids)
        before = ids
    return bins


class Pack:
    def __init__(self, rows, device):
        ids, positions, ends, sources, targets, weights = [], [], [0], [], [], []
        for row in rows:
            start = len(ids)
            ids += row["ids"]
            positions += range(len(row["ids"]))
            ends.append(len(ids))
            sources += [start + t - 1 for t in row["targets"]]
            targets += [row["ids"][t] for t in row["targets"]]
            weights += [row["advantage"]] * len(row["targets"])
        to = lambda x, **kw: torch.tensor(x, device=device, **kw)
        self.ids, self.positions = to([ids]), to([positions])
        self.bounds = {"ends": to(ends, dtype=torch.int32),
                       "longest": max(len(r["ids"]) for r in rows)}
        self.sources, self.targets = to(sources), to(targets)
        self.advantages = to(weights, dtype=torch.float32)

    def hidden(self, model):
        BOUNDS.update(self.bounds)
        return model.model(input_ids=self.ids, position_ids=self.positions,
                           use_cache=False).last_hidden_state[0]

    @classmethod
    def of_tree(cls, rows, device):
        """Rows as a trie in depth-first order: a token sees those before it on its path."""
        rows = sorted(rows, key=lambda row: row["ids"])
        ids, positions, ends, path, before = [], [], [], [], []
        sources, targets, weights = [], [], []
        for row in rows:
            common = shared(before, row["ids"])
            for place in path[common:]:
                ends[place] = len(ids)
            del path[common:]
            for position in range(common, len(row["ids"])):
                path.append(len(ids))
                ids.append(row["ids"][position])
                positions.append(position)
                ends.append(0)
            before = row["ids"]
            sources += [path[t - 1] for t in row["targets"]]
            targets += [row["ids"][t] for t in row["targets"]]
            weights += [row["advantage"]] * len(row["targets"])
        for place in path:
            ends[place] = len(ids)
        pack = cls.__new__(cls)
        to = lambda x, **kw: torch.tensor(x, device=device, **kw)
        pack.ids, pack.positions = to([ids]), to([positions])
        last, count = to(ends, dtype=torch.int32), len(ids)
        sees = lambda b, h, q, k: (k <= q) & (q < last[k])
        pack.bounds = {"mask": create_block_mask(sees, None, None, count, count, device=device)}
        pack.sources, pack.targets = to(sources), to(targets)
        pack.advantages = to(weights, dtype=torch.float32)
        return pack

    def chunks(self):
        return range(0, len(self.sources), CHUNK)

    def logprobs(self, model, hidden, at):
        rows = hidden[self.sources[at:at + CHUNK]]
        logits = (rows @ model.lm_head.weight.T).float()
        chosen = self.targets[at:at + CHUNK].unsqueeze(1)
        return logits.log_softmax(-1).gather(1, chosen).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rows")
    parser.add_argument("model")
    parser.add_argument("--pack-tokens", type=int, default=16384)
    parser.add_argument("--measure", type=int, default=8)
    parser.add_argument("--tree", action="store_true")
    parser.add_argument("--keep-logits", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda")
    config = AutoConfig.from_pretrained(given.model)
    with device:
        model = AutoModelForCausalLM.from_config(config, attn_implementation="tree" if given.tree else "varlen",
                                                 dtype=torch.bfloat16)
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    weights = [p for p in model.parameters() if p.requires_grad]
    main_weights = [p.detach().float() for p in weights]
    gradients = [torch.zeros_like(p) for p in main_weights]
    for main_weight, gradient in zip(main_weights, gradients):
        main_weight.grad = gradient
    optimizer = torch.optim.AdamW(main_weights, lr=5e-6, weight_decay=0.01, fused=True)
    rows = json.load(open(given.rows))
    if given.tree:
        all_packs = [Pack.of_tree(rows, device) for rows in trees(rows, given.pack_tokens)]
    else:
        all_packs = [Pack(rows, device) for rows in packs(rows, given.pack_tokens)]
    tokens = sum(len(pack.targets) for pack in all_packs)
    row_tokens = sum(len(row["ids"]) for row in rows)

    def timed(work):
        torch.cuda.synchronize()
        start = time.perf_counter()
        value = work()
        torch.cuda.synchronize()
        return time.perf_counter() - start, value

    def score():
        with torch.no_grad():
            found = []
            for pack in all_packs:
                hidden = pack.hidden(model)
                found.append(torch.cat([pack.logprobs(model, hidden, at) for at in pack.chunks()]))
            return found

    def collect():
        for weight, gradient in zip(weights, gradients):
            gradient += weight.grad
            weight.grad = None

    def train(previous):
        total = 0.0
        for gradient in gradients:
            gradient.zero_()
        for pack, old in zip(all_packs, previous):
            hidden = pack.hidden(model)
            if given.keep_logits:
                logits = (hidden @ model.lm_head.weight.T).float()
                shifted = torch.cat([pack.ids[0, 1:], pack.ids[0, :1]])
                everywhere = logits.log_softmax(-1).gather(1, shifted.unsqueeze(1)).squeeze(1)
                logprobs = everywhere[pack.sources]
                ratio = (logprobs - old).exp()
                loss = torch.maximum(-pack.advantages * ratio,
                                     -pack.advantages * ratio.clamp(0.8, 1.2)).sum() / tokens
                loss.backward()
                total += loss.detach()
                collect()
                continue
            leaf = hidden.detach().requires_grad_()
            for at in pack.chunks():
                logprobs = pack.logprobs(model, leaf, at)
                ratio = (logprobs - old[at:at + CHUNK]).exp()
                advantage = pack.advantages[at:at + CHUNK]
                loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))
                loss = loss.sum() / tokens
                loss.backward()
                total += loss.detach()
            hidden.backward(leaf.grad)
            collect()
        return total

    def update():
        torch.nn.utils.clip_grad_norm_(main_weights, 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, main_weights)

    for _ in range(given.measure):
        score_seconds, previous = timed(score)
        train_seconds, loss = timed(lambda: train(previous))
        update_seconds, _ = timed(update)
        print(json.dumps({
            "score_seconds": score_seconds, "train_seconds": train_seconds,
            "update_seconds": update_seconds, "row_tokens": row_tokens, "packs": len(all_packs),
            "computed_tokens": sum(pack.ids.numel() for pack in all_packs),
            "peak_bytes": torch.cuda.max_memory_allocated(), "loss": float(loss),
        }), flush=True)


if __name__ == "__main__":
    main()
