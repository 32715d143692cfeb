"""Orders of independent implementations and the metrics an independent simulator gave them.

Read from the shared folder's ``data/schedules``; its README has sources, versions and licences.
"""

from __future__ import annotations

import ast
import csv
import json
from functools import cache
from pathlib import Path

from planner.operations import Order, order_from_lists

Key = tuple[str, str, int, int, int]

FILES = (
    "chimera",
    "deepspeed_1F1B",
    "dualpipe",
    "megatron_1F1B",
    "megatron_interleaved",
    "megatron_interleaved_moe_overlap",
    "sailsg_1f1b_v",
    "sailsg_v_half_min",
    "sailsg_zb_auto",
    "sailsg_zbv_auto",
    "torch_1F1B",
    "torch_DualPipeV",
    "torch_GPipe",
    "torch_Interleaved1F1B",
    "torch_InterleavedZeroBubble",
    "torch_LoopedBFS",
    "torch_ZBVZeroBubble",
)
_NUMBERS = (
    "makespan_F1_I1_W1",
    "bubble_F1_I1_W1",
    "bubble_time_F1_I1_W1",
    "span_bubble_F1_I1_W1",
    "makespan_F1_B1",
    "bubble_F1_B1",
    "bubble_time_F1_B1",
)


@cache
def document(shared_dir: Path, name: str) -> dict:
    """One file, ``megatron_1F1B`` for ``megatron_1F1B.json``: its source and its orders."""
    return json.loads((shared_dir / "data" / "schedules" / f"{name}.json").read_text())


def load(shared_dir: Path, name: str) -> list[dict]:
    """The dumped orders of one file.

    Each has schedule, P, M, V, ranks (lists in the grammar) and the file's own fields.
    """
    return document(shared_dir, name)["orders"]


@cache
def metrics(shared_dir: Path) -> dict[Key, list[dict]]:
    """Rows of metrics.csv by (source, schedule, P, M, V), in the file's order.

    Several rows share a key where orders differ in costs, limits or group (column ``extra``, a
    dict). Numbers are floats, peaks lists of numbers; both None where ``error`` is not empty. The
    file holds rows of orders that are not in the dumps.
    """
    table: dict[Key, list[dict]] = {}
    with (shared_dir / "data" / "schedules" / "metrics.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            key = (row["source"], row["schedule"], int(row["P"]), int(row["M"]), int(row["V"]))
            entry: dict = dict(row)
            for column in _NUMBERS:
                entry[column] = float(row[column]) if row[column] else None
            for column in ("peak_F_to_B", "peak_F_to_W", "extra"):
                entry[column] = ast.literal_eval(row[column]) if row[column] else None
            table.setdefault(key, []).append(entry)
    return table


def rows_of(shared_dir: Path, name: str, entry: dict) -> list[dict]:
    """Rows of metrics.csv whose ``extra`` agrees with a dumped order of file ``name``."""
    key = (name, entry["schedule"], entry["P"], entry["M"], entry["V"])
    return [
        row
        for row in metrics(shared_dir).get(key, [])
        if all(entry.get(field) == value for field, value in (row["extra"] or {}).items())
    ]


def order_of(entry: dict) -> Order:
    """A dumped order as an :class:`Order`; counts come from its own lists."""
    return order_from_lists("order", entry["ranks"])
