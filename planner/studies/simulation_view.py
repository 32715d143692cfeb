"""Simulations as terminal text: figures, a row a rank, the timeline, the critical path."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.report.text import aligned, bytes_column, counted, ms_column, wrap
from planner.report.timeline_picture import format_held
from planner.report.timeline_text import timeline_text
from planner.studies.simulation_result import Simulation
from planner.units import format_bytes, format_ms, format_ranges

__all__ = ["comparison_view", "simulation_view", "why_over"]

_BLANK = Text("")
_ALL_ROWS, _SHOWN_ENDS = 24, 8
_DRAWN_RANKS = 64
"""A timeline of more ranks is no picture on a terminal."""
_PATH_HEAD, _PATH_TAIL = 10, 5


def simulation_view(
    found: Simulation, width: int, *, timeline_width: int, slots: bool, color: bool
) -> RenderableType:
    """Everything about one simulation.

    Parameters
    ----------
    width, timeline_width
        Characters of a line, and of one of the timeline.
    slots
        One cell a slot instead of true to scale.
    color
        Whether the timeline may use colours.
    """
    parts: list[RenderableType] = [
        Text(f"{found.title}: makespan {format_ms(found.makespan_ms)}", style="bold")
    ]
    for label, text in _figures(found):
        first, *more = wrap(text, width - 13)
        line = Text(f" {label:<12}", style="cyan")
        line.append(first, style="default")
        parts += [line, *(Text(" " * 13 + rest) for rest in more)]
    if not found.fits:
        parts += [Text(line, style="bold red") for line in wrap(why_over(found), width, "  ")]
    parts += [_BLANK, *_rank_table(found), _BLANK]
    parts += _drawn(found, timeline_width, slots, color, alone=True)
    parts += [Text(line) for line in wrap(_path_text(found), width, "  ")]
    return Group(*parts, *_notes(found.notes, width))


def comparison_view(
    found: Sequence[Simulation],
    notes: Sequence[str],
    width: int,
    *,
    timeline_width: int,
    slots: bool,
    color: bool,
) -> RenderableType:
    """Several schedules: a row of figures each, then their timelines on one scale."""
    unit, times = ms_column([time for sim in found for time in (sim.step_time_ms, sim.span_ms)])
    least = min(sim.step_time_ms for sim in found)
    header = [
        "schedule", f"step ({unit})", "over best", "bubble", "of ideal", f"span ({unit})",
        "span bubble", "activations", "on rank",
    ]  # fmt: skip
    waits = any(sim.waiting_ms for sim in found)
    if waits:
        header.insert(3, f"transfers ({unit})")
        scale = {"s": 1e-3, "ms": 1.0, "us": 1e3}.get(unit, 1.0)
    rows = []
    for sim, step, span in zip(found, times[::2], times[1::2], strict=True):
        worst = max(range(sim.num_ranks), key=lambda rank: (sim.peak_activation[rank], -rank))
        loss = sim.step_time_ms / least - 1 if least else 0.0
        rows.append(
            [
                sim.schedule, step, f"+{100 * loss:.1f} %" if loss else "0 %",
                _percent(sim.timeline.bubble_fraction), _percent(sim.timeline.bubble_of_ideal),
                span, _percent(sim.timeline.span_bubble),
                format_held(sim.peak_activation[worst]), str(worst),
            ]
        )  # fmt: skip
        if waits:
            rows[-1].insert(3, f"{sim.waiting_ms * scale:.2f}")
    head, *lines = aligned(header, rows, left=[0])
    parts: list[RenderableType] = [
        Text(
            f"{counted(len(found), 'schedule')}, P={found[0].num_ranks}, "
            f"M={found[0].num_microbatches}",
            style="bold",
        ),
        Text(f"  {head}", style="bold"),
        *(Text(f"  {line}") for line in lines),
    ]
    for sim in found:
        if not sim.fits:
            text = f"{sim.schedule}: {why_over(sim)}"
            parts += [Text(line, style="bold red") for line in wrap(text, width, "  ")]
    for sim in found:
        parts += [_BLANK, *_drawn(sim, timeline_width, slots, color, beside=found)]
    said = dict.fromkeys([*notes, *(note for sim in found for note in sim.notes)])
    return Group(*parts, *_notes(list(said), width))


def why_over(found: Simulation) -> str:
    """Which ranks hold more than they may."""
    ranks = found.over_limit
    first = ranks[0]
    word = "rank" if len(ranks) == 1 else "ranks"
    text = f"does not fit: {word} {format_ranges(ranks)} over the limit"
    limit = None if found.activation_limit is None else found.activation_limit[first]
    peak = found.peak_activation[first]
    if limit is not None and peak > limit:
        return (
            f"{text}; rank {first} holds the activations of {format_held(peak)} micro-batches, "
            f"of {format_held(limit)} allowed"
        )
    used, budget = (found.memory_bytes or ())[first], found.budget_bytes[first]
    return f"{text}; rank {first} needs {format_bytes(used)} of {format_bytes(budget)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _figures(found: Simulation) -> list[tuple[str, str]]:
    timeline = found.timeline
    rows = []
    if found.step_time_ms != found.makespan_ms:
        names = [
            name
            for name, values in (
                ("gradient reduction", timeline.times.reduction),
                ("optimizer", timeline.times.optimizer),
            )
            if values is not None and values.any()
        ]
        if found.fixed:
            names.append("fixed overhead")
        rows.append(("step time", f"{format_ms(found.step_time_ms)} with {', '.join(names)}"))
    rows += [
        (
            "bubble",
            f"{_percent(timeline.bubble_fraction)} of the makespan, "
            f"{_percent(timeline.bubble_of_ideal)} of ideal",
        ),
        (
            "span",
            f"{format_ms(found.span_ms)} from first to last operation of a rank, at most; "
            f"{_percent(timeline.span_bubble)} idle",
        ),
    ]
    worst = max(range(found.num_ranks), key=lambda rank: (found.peak_activation[rank], -rank))
    peak = found.peak_activation[worst]
    rule = found.release_rule
    if found.waiting_ms:
        text = f"{format_ms(found.waiting_ms)} of the makespan is waiting for transfers"
        rows.append(("transfers", text))
    if found.steady_period_ms is not None:
        period = f"{format_ms(found.steady_period_ms)} a micro-batch in the steady state"
        rows.append(("period", period))
    rows.append(
        (
            "activations",
            f"of up to {counted_held(peak)}, most on rank {worst} ({rule})",
        )
    )
    if max(found.weight_versions, default=1) > 1:
        low, high = min(found.weight_versions), max(found.weight_versions)
        copies = str(high) if low == high else f"{low} to {high}"
        rows.append(
            (
                "weights",
                f"{copies} versions a rank; gradients up to "
                f"{counted(max(found.staleness), 'update')} old",
            )
        )
    if found.parameter_copies > 1:
        rows.append(("parameters", f"every stage on {found.parameter_copies} ranks"))
    return rows


def counted_held(amount: float) -> str:
    """Micro-batches of activations, in the right number."""
    text = format_held(amount)
    return f"{text} micro-batch" if text == "1" else f"{text} micro-batches"


def _rank_table(found: Simulation) -> list[RenderableType]:
    """Busy and idle time and what is held, by rank; both ends where there are many."""
    timeline, ranks = found.timeline, found.num_ranks
    unit, busy = ms_column([found.quantum.ms(value) for value in timeline.busy.tolist()])
    whole = max(timeline.makespan, 1)
    idle = [_percent(value / whole) for value in timeline.idle.tolist()]
    chunks = found.chunks > 1
    columns: list[tuple[str, list[str]]] = [
        ("rank", [str(rank) for rank in range(ranks)]),
        (f"busy ({unit})", busy),
        ("idle", idle),
        ("chunks in flight" if chunks else "in flight", [str(n) for n in found.in_flight]),
    ]
    if found.order.splits_backward:
        columns.append(("until I", [str(n) for n in found.in_flight_until_i]))
    columns.append(("activations", [format_held(peak) for peak in found.peak_activation]))
    if found.activation_limit is not None:
        columns.append(("limit", [format_held(limit) for limit in found.activation_limit]))
    if found.memory_bytes is not None:
        size, cells = bytes_column(found.memory_bytes)
        columns.append((f"memory ({size})", cells))
        if found.budget_bytes:
            size, cells = bytes_column(found.budget_bytes)
            columns.append((f"budget ({size})", cells))
    if max(found.weight_versions, default=1) > 1:
        columns.append(("weight versions", [str(n) for n in found.weight_versions]))
        columns.append(("staleness", [str(n) for n in found.staleness]))
    rows = [list(row) for row in zip(*(cells for _, cells in columns), strict=True)]
    if ranks > _ALL_ROWS:
        middle = [["..."] + [""] * (len(columns) - 1)]
        rows = rows[:_SHOWN_ENDS] + middle + rows[-_SHOWN_ENDS:]
    head, *lines = aligned([name for name, _ in columns], rows, left=[])
    over = set(map(str, found.over_limit))
    shown: list[RenderableType] = [Text(f"  {head}", style="bold")]
    for row, line in zip(rows, lines, strict=True):
        shown.append(Text(f"  {line}", style="bold red" if row[0] in over else ""))
    return shown


def _drawn(
    found: Simulation,
    width: int,
    slots: bool,
    color: bool,
    *,
    alone: bool = False,
    beside: Sequence[Simulation] = (),
) -> list[RenderableType]:
    """The timeline; ``alone``, without the title and figures that stand above it already.

    Drawn to the scale that it shares with the others ``beside`` it.
    """
    if found.num_ranks > _DRAWN_RANKS:
        text = f"the timeline of {found.num_ranks} ranks is not drawn here; --svg FILE draws it"
        return [Text(text, style="dim"), _BLANK]
    others = [other.picture() for other in beside if other.num_ranks <= _DRAWN_RANKS]
    drawn = timeline_text(
        found.picture(), width=width, slots=slots, color=color, scale_of=others
    ).rstrip("\n")
    if alone:
        head, blank, below = drawn.partition("\n\n")
        drawn = below if blank else head
    return [
        *(Text.from_ansi(line, no_wrap=True, overflow="ignore") for line in drawn.split("\n")),
        _BLANK,
    ]


def _path_text(found: Simulation) -> str:
    path = found.critical_path
    shown = list(path)
    if len(path) > _PATH_HEAD + _PATH_TAIL + 1:
        shown = [*path[:_PATH_HEAD], "..", *path[-_PATH_TAIL:]]
    return f"critical path ({counted(len(path), 'operation')}): {' '.join(shown)}"


def _notes(notes: Sequence[str], width: int) -> list[RenderableType]:
    return [
        Text(line, style="dim") for note in notes for line in wrap(f"note: {note}", width, "  ")
    ]
