"""Small timelines to draw: built here, so that drawings are tested without the builders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.operations import order_from_lists
from planner.report.timeline_picture import TimelinePicture
from planner.schedules.memory_curve import held_by_operation
from planner.schedules.timeline import StageTimes, run_order, unit_times
from planner.specs import Sends

# Two ranks, two chunks each, folded: chunk q on rank q, then back.
FOLDED = [
    ["0F0", "0F1", "3F0", "3I0", "3W0", "3F1", "3I1", "3W1", "0I0", "0W0", "0I1", "0W1"],
    ["1F0", "2F0", "1F1", "2I0", "2F1", "2W0", "1I0", "2I1", "1W0", "1I1", "2W1", "1W1"],
]
# Two ranks, both stages on each; micro-batches 0 and 1 enter at rank 0, 2 and 3 at rank 1.
TWO_WAY = [
    ["0F0", "1F2", "(0F1;1B2)OVERLAP_F_B", "(1F3;0B0)OVERLAP_F_B", "1B3", "0I1", "0W1"],
    ["0F2", "1F0", "(0F3;1B0)OVERLAP_F_B", "(1F1;0B2)OVERLAP_F_B", "1B1", "0I3", "0W3"],
]


def gpipe(ranks: int, microbatches: int) -> list[list[str]]:
    return [[f"{r}{kind}{m}" for kind in "FB" for m in range(microbatches)] for r in range(ranks)]


def one_f_one_b(ranks: int, microbatches: int) -> list[list[str]]:
    lists = []
    for r in range(ranks):
        ahead = min(ranks - 1 - r, microbatches)
        cells = [f"{r}F{m}" for m in range(ahead)]
        for m in range(microbatches - ahead):
            cells += [f"{r}F{m + ahead}", f"{r}B{m}"]
        lists.append(cells + [f"{r}B{m}" for m in range(microbatches - ahead, microbatches)])
    return lists


def split(lists: list[list[str]]) -> list[list[str]]:
    """Every backward as I, then W at once."""
    return [[word for cell in cells for word in _halves(cell)] for cells in lists]


def _halves(cell: str) -> list[str]:
    return [cell.replace("B", "I"), cell.replace("B", "W")] if "B" in cell else [cell]


def looped(ranks: int, chunks: int, microbatches: int) -> list[list[str]]:
    """All forwards of chunk after chunk, and back."""
    lists = []
    for r in range(ranks):
        stages = range(r, ranks * chunks, ranks)
        ahead = [f"{s}F{m}" for s in stages for m in range(microbatches)]
        back = [f"{s}B{m}" for s in reversed(stages) for m in range(microbatches)]
        lists.append(ahead + back)
    return lists


ORDERS: dict[str, list[list[str]]] = {
    "gpipe": gpipe(3, 4),
    "1f1b": one_f_one_b(4, 8),
    "zb": split(one_f_one_b(4, 6)),
    "looped": looped(2, 4, 3),
    "folded": FOLDED,
    "two-way": TWO_WAY,
    "one": [["0F0", "0B0"]],
    "backward first": [["0F0", "(0B0;0F1)OVERLAP_F_B", "(0B1;0F2)OVERLAP_F_B", "0B2"]],
}


def uneven_times(stages: int, ranks: int, seed: int = 0) -> StageTimes:
    """Times, edges and a tail that are all different."""
    draw = np.random.default_rng(seed)
    return StageTimes(
        forward=draw.integers(1, 20, stages),
        input_gradient=draw.integers(1, 20, stages),
        weight_gradient=draw.integers(1, 20, stages),
        edge_forward=draw.integers(1, 6, stages - 1),
        edge_backward=draw.integers(1, 6, stages - 1),
        reduction=draw.integers(1, 9, ranks),
        optimizer=draw.integers(1, 9, ranks),
    )


def make_picture(
    orders: str | Sequence[Sequence[str]],
    *,
    title: str = "a timeline",
    times: StageTimes | None = None,
    uneven: int | None = None,
    sends: Sends = Sends.OVERLAPPED,
    quantum_ms: float = 1.0,
    weights: Sequence[float] | None = None,
    freed_at_i: float = 0.0,
    unit: str = "activations",
    limits: tuple[float, ...] | None = None,
    fixed: tuple[float, ...] | None = None,
) -> TimelinePicture:
    """A picture of an order by its name in ``ORDERS`` or of lists; ``uneven``: a seed of times."""
    lists = ORDERS[orders] if isinstance(orders, str) else orders
    order = order_from_lists("order", lists)
    if uneven is not None:
        times = uneven_times(order.num_stages, order.num_ranks, uneven)
    held = held_by_operation(order, weights, freed_at_i)
    if fixed is not None:
        held = held + np.array(fixed)[order.rank]
    timeline = run_order(order, times or unit_times(order.num_stages), sends)
    return TimelinePicture(title, timeline, quantum_ms, held, unit, limits, fixed)
