#!/usr/bin/env python3
"""Draws docs/shared-prefix.svg: four rows, their forest, and the scores of both.

    python3 scripts/shared-prefix-figure.py > docs/shared-prefix.svg
"""

# Text by name and number of tokens; a row is a path of them from position 0.
TOKENS = {"P": 8, "A": 4, "B": 5, "C": 3, "D": 4, "S": 4, "A'": 4, "E": 3}
ROWS = [("P", "A", "B"), ("P", "A", "C"), ("P", "D"), ("S", "A'", "E")]
# Each path with what it has of older ones, and the row of the figure that it is drawn in.
PATHS = [((), ("P", "A", "B")), (("P", "A"), ("C",)), (("P",), ("D",)), ((), ("S", "A'", "E"))]
COLOURS = {"P": "p", "A": "a", "B": "b", "C": "c", "D": "d", "S": "s", "A'": "a", "E": "e"}
LOSS = {"A": 2, "B": 3, "C": 2, "D": 3, "E": 2}  # the last tokens of a text, generated

CELL, SCORE = 15, 6.5
STYLE = """
  .bg { fill: #ffffff } .line { stroke: #8a939d; fill: none } .frame { stroke: #b6bdc4; fill: none }
  text { fill: #24292f; font: 13px system-ui, sans-serif }
  .head { font-weight: 600; font-size: 15px } .note { fill: #57606a; font-size: 12px }
  .name { font-size: 12px; font-weight: 600 }
  .p { fill: #a9c8f0 } .a { fill: #9bd8cf } .b { fill: #f5cf9a } .c { fill: #f0b4c8 }
  .d { fill: #c3dd9d } .s { fill: #d0c6ee } .e { fill: #d9d4c5 } .dot { fill: #24292f }
  .square { fill: #4f8fdc } .fork { fill: #e59a3c } .again { fill: #c9ced4 }
  @media (prefers-color-scheme: dark) {
    .bg { fill: #0d1117 } .line { stroke: #7d8590 } .frame { stroke: #3d444d }
    text { fill: #e6edf3 } .note { fill: #9198a1 } .dot { fill: #f0f6fc }
    .p { fill: #2c5488 } .a { fill: #1f6d63 } .b { fill: #8a5f1f } .c { fill: #853f5b }
    .d { fill: #4d6b22 } .s { fill: #554a86 } .e { fill: #5d5847 }
    .square { fill: #4f8fdc } .fork { fill: #d98a2b } .again { fill: #444c56 }
  }
"""

out = []


def text(x, y, words, kind="", anchor="start"):
    out.append(f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{words}</text>')


def length(names):
    return sum(TOKENS[name] for name in names)


def bar(x, y, names, before=(), owned=None):
    """Cells of consecutive texts; generated tokens that carry loss here have a dot."""
    at = x + CELL * length(before)
    for name in names:
        for token in range(TOKENS[name]):
            left = at + CELL * token
            out.append(
                f'<rect x="{left:g}" y="{y:g}" width="{CELL - 1}" height="{CELL - 1}" rx="2" '
                f'class="{COLOURS[name]}"/>'
            )
            if token >= TOKENS[name] - LOSS.get(name, 0) and (owned is None or name in owned):
                middle = (left + (CELL - 1) / 2, y + (CELL - 1) / 2)
                out.append(f'<circle cx="{middle[0]:g}" cy="{middle[1]:g}" r="2.4" class="dot"/>')
        text(at + CELL * TOKENS[name] / 2, y - 4, name, "name", "middle")
        at += CELL * TOKENS[name]


def scores(x, y, size, runs):
    """Runs of keys of one query each, by kind: (kind, query, first key, end)."""
    for kind in ("again", "square", "fork"):
        steps = [
            f"M{x + SCORE * first:g} {y + SCORE * query:g}h{SCORE * (end - first):g}"
            f"v{SCORE:g}h{-SCORE * (end - first):g}z"
            for found, query, first, end in runs
            if found == kind
        ]
        if steps:
            out.append(f'<path class="{kind}" d="{"".join(steps)}"/>')
    side = SCORE * size
    out.append(f'<rect x="{x:g}" y="{y:g}" width="{side:g}" height="{side:g}" class="frame"/>')


# Rows, one below the other.
left, top, step = 60, 76, 36
text(24, 34, "Rows: 55 tokens", "head")
seen = set()
for at, row in enumerate(ROWS):
    y = top + step * at
    text(24, y + 12, f"r{at + 1}", "note")
    new = [name for depth, name in enumerate(row) if row[: depth + 1] not in seen]
    seen |= {row[: depth + 1] for depth in range(len(row))}
    bar(left, y, row, owned=new)
text(24, top + step * 4 + 4, "A dot is a token with loss: each once, in the first row that has it.", "note")

# The forest: the same texts, each once, at their positions.
left = 500
text(464, 34, "Forest: 35 tokens in four paths", "head")
for at, (before, own) in enumerate(PATHS):
    y = top + step * at
    text(464, y + 12, f"{at + 1}", "note")
    bar(left, y, own, before)
    if before:
        x = left + CELL * length(before) - 1 - CELL / 2
        out.append(
            f'<path class="line" d="M{x:g} {top + CELL:g}V{y + CELL / 2 - 1:g}h{CELL / 2:g}"/>'
        )
text(464, top + step * 4 + 4, "A branch hangs on the token that predicts its first one.", "note")
text(464, top + step * 4 + 20, "A' is the text of A at other positions: another prefix.", "note")

# Who attends to whom: packed rows.
top = 300
text(24, top - 30, "Scores of packed rows: 417", "head")
text(24, top - 12, "queries downwards, keys to the right", "note")
runs, start, seen = [], 0, set()
for at, row in enumerate(ROWS):
    middle = SCORE * (start + length(row) / 2)
    text(24 + middle + 12, top + middle - 4, f"r{at + 1}", "name")
    known = 0
    while known < len(row) and row[: known + 1] in seen:
        known += 1
    seen |= {row[: depth + 1] for depth in range(len(row))}
    known = length(row[:known])
    for query in range(length(row)):
        at = start + query
        if query < known:
            runs.append(("again", at, start, at + 1))
        else:
            if known:
                runs.append(("fork", at, start, start + known))
            runs.append(("square", at, start + known, at + 1))
    start += length(row)
count = lambda runs, *kinds: sum(run[3] - run[2] for run in runs if run[0] in kinds)
assert (start, count(runs, "again", "fork", "square")) == (55, 417)
scores(24, top, start, runs)
packed = runs

# Who attends to whom: the forest.
text(464, top - 30, "Scores of the forest: 303", "head")
text(464, top - 12, "a square for each path, a rectangle for each fork", "note")
runs, start = [], 0
for before, own in PATHS:
    text(457, top + SCORE * (start + length(own) / 2) + 4, " ".join(own), "name", "end")
    for query in range(length(own)):
        if before:
            # What is borrowed is the beginning of the first path here.
            runs.append(("fork", start + query, 0, length(before)))
        runs.append(("square", start + query, start, start + query + 1))
    start += length(own)
assert (start, count(runs, "fork", "square")) == (35, 303)
for kind in ("fork", "square"):
    assert count(packed, kind) == count(runs, kind)
scores(464, top, start, runs)

y = top + SCORE * 35 + 34
for kind, words in [
    ("square", "tokens of a path to each other: causal"),
    ("fork", "branches to what they share: full"),
    ("again", "computed before, in another row"),
]:
    out.append(f'<rect x="464" y="{y - 11:g}" width="13" height="13" class="{kind}"/>')
    text(486, y, words, "note")
    y += 21
text(464, y + 8, "55 / 35 tokens are 1.57 x, 417 / 303 scores 1.38 x:", "note")
text(464, y + 25, "what is orange stays, however much is shared.", "note")

width, height = 824, top + SCORE * 55 + 24
print(
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="{width}" '
    f'height="{height:g}" role="img" aria-label="Four rows of tokens, the forest of their prefixes, '
    f'and the attention scores of both">\n<style>{STYLE}</style>\n'
    f'<rect width="{width}" height="{height:g}" rx="8" class="bg"/>'
)
print("\n".join(out))
print("</svg>")
