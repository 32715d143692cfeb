"""A plan as terminal text (rich): what an engineer reads instead of the JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.plans import (
    Candidate,
    Explanation,
    Infeasible,
    Layout,
    Plan,
    Rejected,
    Status,
    Suggestion,
    Violation,
)
from planner.report.figures import figures, headline
from planner.report.stages import stage_table
from planner.report.text import aligned, bytes_column, counted, ms_column, wrap
from planner.specs import Objective
from planner.units import format_ms

__all__ = ["explanation_view", "plan_view", "violations_view"]

_BLANK = Text("")


def plan_view(plan: Plan, width: int = 132, *, judged: bool = False) -> RenderableType:
    """The whole answer: headline, figures, stages, communication, runners-up, notes.

    Parameters
    ----------
    plan
        What was found.
    width
        Characters of a line.
    judged
        The plan is one that ``check.py`` re-priced: it carries figures and no proof of its own.
    """
    parts: list[RenderableType] = [headline(plan, width, judged)]
    if plan.status is Status.UNKNOWN:
        parts.append(Text("no plan was found before the time limit; nothing is proven"))
        return Group(*parts)
    if plan.infeasible is not None:
        parts += _infeasible_view(plan.infeasible, width)
        if plan.stages:
            parts += [
                _BLANK,
                *_lines(f"closest layout: {plan.layout.short()}", width),
                stage_table(plan, width),
            ]
        return Group(*parts)
    parts += [*figures(plan, width), stage_table(plan, width)]
    if plan.communication:
        parts += _communication(plan)
    if plan.runners_up:
        by_cost = plan.objective is Objective.TOKENS_PER_DOLLAR
        parts += _candidates("Runners-up", plan.runners_up, width, by_cost=by_cost)
    if plan.pareto:
        parts += _candidates("Pareto set (step time, peak memory, GPUs)", plan.pareto, width)
    if plan.rejected:
        parts += _rejected(plan.rejected, width)
    parts += _notes(plan, width)
    return Group(*parts)


def _lines(text: str, width: int, indent: str = "", style: str = "") -> list[RenderableType]:
    return [Text(line, style=style) for line in wrap(text, width, indent)]


# --- tables ------------------------------------------------------------------------------------


def _titled(title: str, lines: Sequence[str]) -> list[RenderableType]:
    head, *rows = lines
    return [
        Text(title, style="bold"),
        Text(f"  {head}", style="bold"),
        *(Text(f"  {row}") for row in rows),
        _BLANK,
    ]


def _communication(plan: Plan) -> list[RenderableType]:
    groups = plan.communication
    size_unit, sizes = bytes_column([group.bytes_per_step for group in groups])
    unit, times = ms_column([time for g in groups for time in (g.hidden_ms, g.exposed_ms)])
    header = [
        "group", "ranks", "wires", f"sent by a rank ({size_unit})", f"hidden ({unit})",
        f"exposed ({unit})",
    ]  # fmt: skip
    rows = [
        [group.kind, str(group.ranks), group.tier.value, size, hidden, exposed]
        for group, size, hidden, exposed in zip(groups, sizes, times[::2], times[1::2], strict=True)
    ]
    return _titled("Communication of a step", aligned(header, rows, left=[0, 2]))


def _schedule_text(layout: Layout) -> str:
    """The schedule, with its chunks a rank where there are several."""
    chunks = f" x{layout.vpp}" if layout.vpp > 1 else ""
    return f"{layout.schedule.value}{chunks}"


def _degrees(layout: Layout) -> list[str]:
    return [
        str(layout.dp), str(layout.pp), str(layout.tp), str(layout.microbatch_size),
        str(layout.num_microbatches), _schedule_text(layout), layout.recompute,
    ]  # fmt: skip


_DEGREES = ["dp", "pp", "tp", "m", "M", "schedule", "recompute"]


def _candidates(
    title: str, candidates: Iterable[Candidate], width: int, *, by_cost: bool = False
) -> list[RenderableType]:
    """Runners-up or a Pareto set: a row of figures, and under it why the layout loses.

    With ``by_cost`` a column has tokens/$, or GPU-seconds a step where no price is known.
    """
    chosen = list(candidates)
    time_unit, times = ms_column([candidate.step_time_ms for candidate in chosen])
    size_unit, sizes = bytes_column([candidate.peak_memory_bytes for candidate in chosen])
    header = [*_DEGREES, f"step ({time_unit})", f"peak ({size_unit})", "GPUs"]
    rows = [
        [*_degrees(candidate.layout), time, size, str(candidate.num_gpus)]
        for candidate, time, size in zip(chosen, times, sizes, strict=True)
    ]
    if by_cost:
        label, costs = _costs(chosen)
        header.append(label)
        rows = [[*row, cost] for row, cost in zip(rows, costs, strict=True)]
    head, *lines = _fitted(header, rows, [5, 6], width)
    parts: list[RenderableType] = [Text(title, style="bold"), Text(f"  {head}", style="bold")]
    for candidate, line in zip(chosen, lines, strict=True):
        parts.append(Text(f"  {line}"))
        if candidate.why:
            parts += _lines(f"    {candidate.why}", width, "      ", "dim")
    return [*parts, _BLANK]


def _costs(candidates: Sequence[Candidate]) -> tuple[str, list[str]]:
    """What a token costs, with the column's name."""
    per_dollar = [candidate.tokens_per_dollar for candidate in candidates]
    if all(value is not None for value in per_dollar):
        return "tokens/$", [f"{value:,.0f}" for value in per_dollar]
    seconds = [candidate.step_time_ms / 1e3 * candidate.num_gpus for candidate in candidates]
    decimals = 0 if max(seconds, default=0.0) >= 1000 else 2
    return "GPU-s a step", [f"{value:,.{decimals}f}" for value in seconds]


def _fitted(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int], width: int
) -> list[str]:
    """Lines of a table, its columns one space apart where two would not fit the width."""
    lines = aligned(header, rows, left)
    # Two characters are the indent.
    if max(map(len, lines)) + 2 <= width:
        return lines
    return aligned(header, rows, left, gap=1)


def _rejected(rejected: Iterable[Rejected], width: int) -> list[RenderableType]:
    """Layouts that lost, with the reason; equal details are said once, below the table."""
    rows = list(rejected)
    columns = {
        "step": ms_column([row.step_time_ms for row in rows]),
        "bound": ms_column([row.bound_ms for row in rows]),
        "lacks": bytes_column([row.short_bytes for row in rows]),
    }
    shown = {name: column for name, column in columns.items() if any(column[1])}
    details = {text: number for number, text in enumerate(dict.fromkeys(r.detail for r in rows), 1)}
    header = [*_DEGREES[:-1], "reason", *(f"{name} ({unit})" for name, (unit, _) in shown.items())]
    cells = [
        [
            *_degrees(row.layout)[:-1],
            f"{row.reason} ({details[row.detail]})",
            *(column[index] for _, column in shown.values()),
        ]
        for index, row in enumerate(rows)
    ]
    lines = _fitted(header, cells, [5, 6], width)
    parts = _titled(f"Rejected layouts ({len(rows)})", lines)[:-1]
    for text, number in details.items():
        parts += _lines(f"  ({number}) {text}", width, "      ", "dim")
    return [*parts, _BLANK]


# --- words -------------------------------------------------------------------------------------


def _infeasible_view(infeasible: Infeasible, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = _lines(infeasible.message, width, "  ")
    parts.append(_BLANK)
    if infeasible.suggestions:
        parts.append(Text("Each of these was tried and fits:", style="bold"))
        for suggestion in infeasible.suggestions:
            parts += _lines(_suggestion_text(suggestion), width, "    ")
    else:
        parts.append(Text("No nearby change was found that fits."))
    return parts


def _suggestion_text(suggestion: Suggestion) -> str:
    flags = ", ".join(
        f"omit {flag}" if value == "(omit)" else f"{flag} {value}".strip()
        for flag, value in suggestion.arguments.items()
    )
    result = ""
    if suggestion.step_time_ms is not None:
        result = f"; step time {format_ms(suggestion.step_time_ms)}"
    return f"- {suggestion.change} [{flags}]{result}"


def _notes(plan: Plan, width: int) -> list[RenderableType]:
    notes = list(plan.notes)
    if plan.status is Status.FEASIBLE and plan.objective is not Objective.BOTTLENECK:
        reason = plan.termination.reason if plan.termination else ""
        limits = {
            "time_limit": "the time limit",
            "work_limit": "the work limit",
            "stopped": "being stopped",
        }
        limit = limits.get(reason)
        if limit is not None:
            notes.append(f"not proven optimal: {limit} ended the proof")
        elif reason == "weak_bound":
            notes.append(
                "not proven optimal: where ranks hold several stages the bound is what their "
                "loads allow, and the gap may be the bound's"
            )
    return [line for note in notes for line in _lines(f"note: {note}", width, "      ", "dim")]


def violations_view(
    violations: Iterable[Violation], plan: Plan, width: int = 132, *, bound: str = ""
) -> RenderableType:
    """What a judged plan says that is not so.

    Parameters
    ----------
    violations
        Found by ``check.py``.
    plan
        As its file has it.
    width
        Characters of a line.
    bound
        What was recomputed of the bound, in words; empty where the plan states none.
    """
    rows = list(violations)
    if not rows:
        text = "verified: partition, memory and prices hold"
        if bound and plan.bound_ms is not None:
            stated = f"{plan.status.value}, bound {format_ms(plan.bound_ms)}"
            if plan.gap is not None:
                stated += f", gap {100 * plan.gap:.2g} %"
            text += f"; the plan says {stated}: {bound}"
        return Group(*_lines(text, width, "  ", "green"))
    head = Text(counted(len(rows), "violation"), style="bold red")
    return Group(
        head,
        *(line for row in rows for line in _lines(f"  {row.code}: {row.message}", width, "    ")),
    )


def explanation_view(explanation: Explanation, width: int = 132) -> RenderableType:
    """What limits a plan."""
    if explanation.infeasible is not None:
        return Group(*_infeasible_view(explanation.infeasible, width))
    parts: list[RenderableType] = _lines(explanation.headline, width, "  ", "bold")
    total = sum(explanation.breakdown_ms.values())
    if total:
        unit, times = ms_column([*explanation.breakdown_ms.values(), total])
        shares = [f"{100 * value / total:.1f} %" for value in explanation.breakdown_ms.values()]
        rows = [
            [part, time, share]
            for part, time, share in zip(
                [*explanation.breakdown_ms, "step time"], times, [*shares, "100.0 %"], strict=True
            )
        ]
        lines = aligned(["part of the step", unit, "share"], rows, left=[0])
        parts += [_BLANK, *(Text(f"  {line}") for line in lines), _BLANK]
    for finding in explanation.findings:
        parts += _lines(f"- {finding}", width, "  ")
    return Group(*parts)
