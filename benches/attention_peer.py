"""Compiled flex attention under the mask of a forest, alone: attention_peer.py ROWS.json HEADS KV_HEADS

Milliseconds forward, and forward and backward, in bfloat16 with heads of 128: a line of JSON.
"""

import json
import sys

import torch

from learner_peer import Pack, flex

device = torch.device("cuda")
rows = json.load(open(sys.argv[1]))
heads, kv_heads = map(int, sys.argv[2:4])
pack = Pack.of_tree(rows, device)
count = pack.ids.numel()
draw = lambda n: torch.randn(1, n, count, 128, device=device, dtype=torch.bfloat16)
query, key, value = (draw(n).requires_grad_() for n in (heads, kv_heads, kv_heads))
slope = draw(heads)
forward = lambda: flex(query, key, value, block_mask=pack.bounds["mask"], enable_gqa=True)
both = lambda: forward().backward(slope)


def milliseconds(work, times=10):
    for _ in range(3):
        work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
    begin.record()
    for _ in range(times):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / times


print(json.dumps({"tokens": count, "forward_ms": milliseconds(forward),
                  "both_ms": milliseconds(both)}))
