"""Rows that train, as JSON for `learner_peer.py`: learner_rows.py ROWS OUT.json"""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

rows = []
for part in sorted(Path(sys.argv[1]).glob("rows/*.parquet")):
    for row in pq.read_table(part).to_pylist():
        targets = [t for t, mask in enumerate(row["loss_mask"]) if mask]
        if row["sample_mask"] == 1.0 and targets:
            rows.append({"ids": row["input_ids"], "targets": targets,
                         "advantage": row["advantage"]})
Path(sys.argv[2]).write_text(json.dumps(rows))
