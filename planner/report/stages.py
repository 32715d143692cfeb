"""The stage table: a row a pipeline rank, equal neighbours on one row where there are many."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from planner.plans import Plan, Stage, Verdict
from planner.report.text import bytes_column, counted, ms_column, spread
from planner.specs import Recompute
from planner.units import format_bytes

__all__ = ["chunks_text", "layers_text", "stage_table"]

"""Budgets from here on mean "no limit was given"."""
_ALL_ROWS = 16
"""Plans with more ranks have equal neighbours merged."""
_MOST_ROWS = 40
_SHOWN_ENDS = 12
_VERDICT = {
    Verdict.FITS: ("fits", "green"),
    Verdict.TIGHT: ("tight", "yellow"),
    Verdict.OUT_OF_MEMORY: ("out of memory", "bold red"),
}
_NUMBERS = re.compile(r"(\d+)")
_NUMBER_OR_RANGE = re.compile(r"\d+(?:-\d+)?")


def layers_text(names: Sequence[str], longest: int = 40) -> str:
    """The layers of a stage in a cell: names, or the first and last with the count.

    Examples
    --------
    >>> layers_text(["embedding", "block.0", "block.1"])
    'embedding .. block.1 (3)'
    >>> layers_text([f"block.{i}" for i in range(12, 24)])
    'block.12-23 (12)'
    >>> layers_text([f"model.decoder.layers.{i}.attention.dense" for i in range(8)], 28)
    '..der.layers.0-7.atten.. (8)'
    >>> layers_text(["conv1", "relu"])
    'conv1, relu'
    """
    if len(names) == 1 or (len(names) == 2 and len(names[0]) + len(names[1]) <= 16):
        return ", ".join(_clipped(name, longest) for name in names)
    count = f" ({len(names)})"
    run = _numbered_run(names[0], names[-1])
    if run is not None:
        return _clipped(run, longest - len(count)) + count
    half = (longest - len(count) - 4) // 2
    return f"{_clipped(names[0], half)} .. {_clipped(names[-1], half)}{count}"


def chunks_text(chunks: Sequence[Sequence[str]], longest: int = 40) -> str:
    """The chunks of a rank in a cell: each as its first and last layer, or the ends and the count.

    Examples
    --------
    >>> chunks_text([["block.0", "block.1"], ["block.8", "block.9"]])
    'block.0-1 | block.8-9 (4)'
    >>> chunks_text([[f"block.{8 * i}"] for i in range(6)], 28)
    'block.0 | 4 more | block.40 (6)'
    >>> chunks_text([["embedding", *"abcdefgh"], ["block.44", "block.45", "norm", "head"]], 32)
    'embedding +8 | block.44 +3 (13)'
    """
    count = f" ({sum(len(chunk) for chunk in chunks)})"

    def ends(chunk: Sequence[str]) -> str:
        if len(chunk) == 1:
            return _clipped(chunk[0], 20)
        return _numbered_run(chunk[0], chunk[-1]) or f"{chunk[0]} .. {chunk[-1]}"

    whole = " | ".join(ends(chunk) for chunk in chunks) + count
    if len(whole) <= longest:
        return whole
    # The first layer of each and how many follow: names that are cut say nothing.
    short = [f"{chunk[0]} +{len(chunk) - 1}" if len(chunk) > 1 else chunk[0] for chunk in chunks]
    if len(chunks) > 2 and len(" | ".join(short) + count) > longest:
        short = [short[0], f"{len(chunks) - 2} more", short[-1]]
    room = (longest - len(count) - 3 * (len(short) - 1)) // len(short)
    return (
        " | ".join(name if len(name) <= room + 6 else _clipped(name, room) for name in short)
        + count
    )


def _numbered_run(first: str, last: str) -> str | None:
    """``block.0-7`` for two names that differ in one number alone."""
    ours, theirs = _NUMBERS.split(first), _NUMBERS.split(last)
    if len(ours) != len(theirs):
        return None
    different = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    # Odd places of the split hold the numbers.
    if len(different) != 1 or different[0] % 2 == 0:
        return None
    place = different[0]
    return "".join([*ours[:place], f"{ours[place]}-{theirs[place]}", *ours[place + 1 :]])


def _clipped(name: str, longest: int) -> str:
    """A long name without its ends, around its last number; without its middle if it has none."""
    longest = max(longest, 12)
    if len(name) <= longest:
        return name
    numbers = list(_NUMBER_OR_RANGE.finditer(name))
    if not numbers:
        return f"{name[: longest // 2 - 1]}..{name[-(longest - longest // 2 - 1) :]}"
    number = numbers[-1]
    room = longest - 4 - len(number[0])
    start = max(0, number.start() - 2 * room // 3)
    end = min(len(name), start + longest - 4)
    start = max(0, end - (longest - 4))
    return f"{'..' if start else ''}{name[start:end]}{'..' if end < len(name) else ''}"


def stage_table(plan: Plan, width: int = 132) -> Table:
    """Layers, times, communication, in flight and memory of budget of every rank.

    Parameters
    ----------
    plan
        With stages.
    width
        Characters of a line.

    Notes
    -----
    Beyond 16 ranks, neighbours that differ only in how much they hold in flight share a row and
    give that as a range. The JSON keeps every rank.
    """
    stages = plan.stages
    budgets = {stage.budget_bytes for stage in stages}
    limited = any(stage.is_limited for stage in stages)
    recomputing = any(stage.recompute is not Recompute.NONE for stage in stages)
    forward_unit, forward = ms_column([stage.forward_ms for stage in stages])
    backward_unit, backward = ms_column([stage.backward_ms for stage in stages])
    sent_unit, sent = ms_column([stage.communication_ms for stage in stages])
    memory_unit, memory = bytes_column([stage.memory_bytes for stage in stages])

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("layers", overflow="fold", min_width=10)
    table.add_column(f"F\n{forward_unit}", justify="right", no_wrap=True)
    table.add_column(f"B\n{backward_unit}", justify="right", no_wrap=True)
    table.add_column(f"comm.\n{sent_unit}", justify="right", no_wrap=True)
    if recomputing:
        table.add_column("re-\ncompute", no_wrap=True)
    chunked = any(len(stage.chunks) > 1 for stage in stages)
    held = "chunks in\nflight" if chunked else "in\nflight"
    table.add_column(held, justify="right", no_wrap=True)
    table.add_column(f"memory\n{memory_unit}", justify="right", no_wrap=True)
    if limited:
        shared = f"of budget\n{format_bytes(budgets.copy().pop())}"
        table.add_column(shared if len(budgets) == 1 else "of budget", no_wrap=True)

    def key(rank: int) -> tuple[object, ...]:
        stage = stages[rank]
        return (
            len(stage.layers), forward[rank], backward[rank], sent[rank],
            _recompute_text(stage), stage.verdict, stage.budget_bytes,
        )  # fmt: skip

    groups = _groups(len(stages), key)
    kept = _visible(groups, stages)
    longest = 40 if width >= 110 else 28
    for before, (low, high) in zip([None, *kept[:-1]], kept, strict=True):
        if before is not None and before[1] + 1 < low:
            table.add_row("...", f"{counted(low - before[1] - 1, 'rank')} not shown (see JSON)")
        first, last = stages[low], stages[high]
        row: list[RenderableType] = [
            spread(str(first.rank), str(last.rank)),
            _group_layers(stages[low : high + 1], longest),
            forward[low],
            backward[low],
            sent[low],
        ]
        if recomputing:
            row.append(_recompute_text(first))
        row.append(spread(str(first.in_flight), str(last.in_flight)))
        row.append(spread(memory[low], memory[high]))
        if limited:
            row.append(_budget_cell(first, last, len(budgets) == 1, width))
        table.add_row(*row)
    return table


def _groups(count: int, key: Callable[[int], object]) -> list[tuple[int, int]]:
    """Runs of equal ranks as (first, last); the first and last rank stand alone."""
    if count <= _ALL_ROWS:
        return [(rank, rank) for rank in range(count)]
    starts = [0]
    for rank, following in pairwise(range(count)):
        if following == count - 1 or rank == 0 or key(rank) != key(following):
            starts.append(following)
    return [(low, high - 1) for low, high in pairwise([*starts, count])]


def _visible(groups: list[tuple[int, int]], stages: Sequence[Stage]) -> list[tuple[int, int]]:
    """All rows, or both ends with the slowest and the fullest rank where there are too many."""
    if len(groups) <= _MOST_ROWS:
        return groups
    slowest = max(
        range(len(stages)),
        key=lambda r: (
            stages[r].forward_ms + stages[r].backward_ms + stages[r].communication_ms,
            -r,
        ),
    )
    fullest = max(range(len(stages)), key=lambda r: (stages[r].memory_bytes, -r))
    return [
        (low, high)
        for index, (low, high) in enumerate(groups)
        if index < _SHOWN_ENDS
        or index >= len(groups) - _SHOWN_ENDS
        or low <= slowest <= high
        or low <= fullest <= high
    ]


def _group_layers(stages: Sequence[Stage], longest: int) -> str:
    if len(stages) == 1 and len(stages[0].chunks) > 1:
        return chunks_text(stages[0].chunks, longest)
    names = [name for stage in stages for name in stage.layers]
    text = layers_text(names, longest)
    if len(stages) == 1:
        return text
    # The count of a group is what each of its ranks holds.
    return f"{text.removesuffix(f' ({len(names)})')} ({len(stages[0].layers)} each)"


def _budget_cell(first: Stage, last: Stage, shared: bool, width: int) -> Text:
    shares = [_percent(stage.memory_bytes, stage.budget_bytes) for stage in (first, last)]
    word, style = _VERDICT[first.verdict]
    text = Text(f"{spread(*shares)} %")
    if not shared:
        text.append(f" of {format_bytes(first.budget_bytes)}")
    text.append("\n" if len(word) > 8 and width < 100 else " ")
    text.append(word, style=style)
    return text


def _percent(used: int, budget: int) -> str:
    share = 100 * used / budget if budget else 0.0
    return f"{share:.0f}" if share < 999.5 else ">999"


def _recompute_text(stage: Stage) -> str:
    if stage.recompute is Recompute.LAYERS:
        return f"first {stage.recomputed_layers}"
    return stage.recompute.value
