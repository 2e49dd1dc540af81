"""Writes tokenizer.json beside this script: byte-level BPE of printable ASCII with few merges.

Small enough to read, and enough to write one text in several ways: letter by letter or merged.
"""

import json
from pathlib import Path

SPECIAL = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
# The byte-level alphabet writes a line break as U+010A and a space as U+0120.
LETTERS = [chr(0x10A), chr(0x120)] + [chr(code) for code in range(0x21, 0x7F)]
MERGES = ["l s", "u s", "us e", "use r", "a s", "f i", "fi l", "fil e", "file s", chr(0x120) + " files"]

vocabulary = SPECIAL + LETTERS + [merge.replace(" ", "") for merge in MERGES]
added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
tokenizer = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [{"id": i, "content": word, **added} for i, word in enumerate(SPECIAL)],
    "normalizer": None,
    "pre_tokenizer": level,
    "post_processor": None,
    "decoder": level,
    "model": {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {word: i for i, word in enumerate(vocabulary)},
        "merges": MERGES,
    },
}
path = Path(__file__).parent / "tokenizer.json"
path.write_text(json.dumps(tokenizer, separators=(",", ":"), ensure_ascii=True) + "\n")
