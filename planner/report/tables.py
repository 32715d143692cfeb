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
from planner.report.stages import stage_table
from planner.report.text import aligned, bytes_column, counted, ms_column, wrap
from planner.specs import Objective
from planner.units import format_ms

__all__ = ["explanation_view", "plan_view", "violations_view"]

_STATUS_STYLE = {
    Status.OPTIMAL: "bold green",
    Status.FEASIBLE: "bold yellow",
    Status.INFEASIBLE: "bold red",
    Status.UNKNOWN: "bold red",
}
_SCOPES = {
    "space": "all cuts of all layouts",
    "cuts": "all cuts",
    "block_cuts": "all cuts between blocks",
    "file_order_cuts": "all cuts in the order of the file",
}
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
    parts: list[RenderableType] = [_headline(plan, width, judged)]
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
    parts += [*_figures(plan, width), stage_table(plan, width)]
    if plan.communication:
        parts += _communication(plan)
    if plan.runners_up:
        parts += _candidates("Runners-up", plan.runners_up, width)
    if plan.pareto:
        parts += _candidates("Pareto set (step time, peak memory, GPUs)", plan.pareto, width)
    if plan.rejected:
        parts += _rejected(plan.rejected, width)
    parts += _notes(plan, width)
    return Group(*parts)


def _lines(text: str, width: int, indent: str = "", style: str = "") -> list[RenderableType]:
    return [Text(line, style=style) for line in wrap(text, width, indent)]


# --- head --------------------------------------------------------------------------------------


def _headline(plan: Plan, width: int, judged: bool) -> Text:
    lead = plan.model
    if plan.cluster:
        lead += f" on {plan.cluster}"
        if plan.num_gpus > 1 or plan.idle_gpus:
            lead += f", {counted(plan.num_gpus, 'GPU')}"
        if plan.idle_gpus:
            lead += f" ({plan.idle_gpus} idle)"
    word = "priced again" if judged else plan.status.value
    rest = ""
    if plan.gap is not None and plan.bound_ms is not None and not judged:
        if plan.status is Status.OPTIMAL:
            rest = f", proven over {_SCOPES.get(plan.bound_covers, plan.bound_covers)}"
        rest += f" (bound {format_ms(plan.bound_ms)}, gap {100 * plan.gap:.2g} %)"
    folded = "\n".join(wrap(f"{lead}: {word}{rest}", width, "  "))
    text = Text(folded)
    text.stylize("bold", 0, len(plan.model))
    start = folded.find(word, len(lead))
    if start >= 0 and not judged:
        text.stylize(_STATUS_STYLE[plan.status], start, start + len(word))
    return text


def _figures(plan: Plan, width: int) -> list[RenderableType]:
    rows = [("layout", _layout_text(plan.layout))]
    if plan.step_time_ms is not None and plan.step_terms is not None:
        rows.append(("step time", _step_text(plan)))
    if plan.bottleneck_ms is not None:
        worst = max(
            plan.stages, key=lambda s: (s.forward_ms + s.backward_ms + s.communication_ms, -s.rank)
        )
        rows.append(
            (
                "bottleneck",
                f"{format_ms(plan.bottleneck_ms)} per micro-batch on rank {worst.rank} "
                "(F + B + comm.)",
            )
        )
    rates = []
    if plan.tokens_per_s is not None:
        rates.append(f"{plan.tokens_per_s:,.0f} tokens/s")
    if plan.mfu is not None:
        rates.append(f"MFU {100 * plan.mfu:.1f} %")
    if plan.bubble_fraction is not None:
        rates.append(f"bubble {100 * plan.bubble_fraction:.1f} %")
    if plan.tokens_per_dollar is not None:
        rates.append(f"{plan.tokens_per_dollar:,.0f} tokens/$")
    if rates:
        rows.append(("rates", ", ".join(rates)))
    if plan.origins:
        shares = (f"{name} {100 * share:.0f} %" for name, share in plan.origins.items())
        rows.append(("times from", ", ".join(shares)))
    if plan.certificate is not None:
        rows.append(("search", _search_text(plan)))
    label_width = max(len(label) for label, _ in rows) + 2
    parts: list[RenderableType] = []
    for label, text in rows:
        first, *more = wrap(text, width - label_width - 1)
        line = Text(f" {label:<{label_width}}", style="cyan")
        line.append(first, style="default")
        parts.append(line)
        parts += [Text(" " * (label_width + 1) + further) for further in more]
    return parts


def _layout_text(layout: Layout) -> str:
    return (
        f"dp {layout.dp} x pp {layout.pp} x tp {layout.tp}, "
        f"{counted(layout.num_microbatches, 'micro-batch').replace('batchs', 'batches')} of "
        f"{layout.microbatch_size}, schedule {layout.schedule.value}, recompute {layout.recompute}"
    )


def _step_text(plan: Plan) -> str:
    terms = plan.step_terms
    assert terms is not None
    assert plan.step_time_ms is not None
    tail = [
        ("gradient reduction", terms.exposed_reduction_ms),
        ("optimizer", terms.optimizer_ms),
        ("fixed", terms.fixed_ms),
    ]
    named = "".join(f" + {name} {format_ms(value)}" for name, value in tail if value)
    if not named:
        return f"{format_ms(plan.step_time_ms)} (simulated makespan)"
    return f"{format_ms(plan.step_time_ms)} = makespan {format_ms(terms.makespan_ms)}{named}"


def _search_text(plan: Plan) -> str:
    certificate = plan.certificate
    assert certificate is not None
    effort = f"{counted(certificate.probes, 'probe')}, "
    effort += counted(certificate.simulations, "simulation")
    if certificate.nodes:
        effort += f", {counted(certificate.nodes, 'branch-and-bound node')}"
    if certificate.layouts:
        exact = certificate.witness.get("layouts_with_exact_bottleneck", 0)
        effort = (
            f"{counted(certificate.layouts, 'layout')} bounded, {exact} balanced exactly, "
            f"{certificate.layouts_solved} solved, {effort}"
        )
    return effort


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


def _degrees(layout: Layout) -> list[str]:
    return [
        str(layout.dp), str(layout.pp), str(layout.tp), str(layout.microbatch_size),
        str(layout.num_microbatches), layout.schedule.value, layout.recompute,
    ]  # fmt: skip


_DEGREES = ["dp", "pp", "tp", "m", "M", "schedule", "recompute"]


def _candidates(title: str, candidates: Iterable[Candidate], width: int) -> list[RenderableType]:
    """Runners-up or a Pareto set: a row of figures, and under it why the layout loses."""
    chosen = list(candidates)
    time_unit, times = ms_column([candidate.step_time_ms for candidate in chosen])
    size_unit, sizes = bytes_column([candidate.peak_memory_bytes for candidate in chosen])
    header = [*_DEGREES, f"step ({time_unit})", f"peak ({size_unit})", "GPUs"]
    rows = [
        [*_degrees(candidate.layout), time, size, str(candidate.num_gpus)]
        for candidate, time, size in zip(chosen, times, sizes, strict=True)
    ]
    head, *lines = aligned(header, rows, left=[5, 6])
    parts: list[RenderableType] = [Text(title, style="bold"), Text(f"  {head}", style="bold")]
    for candidate, line in zip(chosen, lines, strict=True):
        parts.append(Text(f"  {line}"))
        if candidate.why:
            parts += _lines(f"    {candidate.why}", width, "      ", "dim")
    return [*parts, _BLANK]


def _rejected(rejected: Iterable[Rejected], width: int) -> list[RenderableType]:
    """Layouts that lost, with the reason; equal details are said once, below the table."""
    rows = list(rejected)
    time_unit, times = ms_column([row.step_time_ms for row in rows])
    bound_unit, bounds = ms_column([row.bound_ms for row in rows])
    header = [
        *_DEGREES[:-1], "reason", f"step ({time_unit})", f"bound ({bound_unit})", "detail",
    ]  # fmt: skip
    details = {text: number for number, text in enumerate(dict.fromkeys(r.detail for r in rows), 1)}
    shown = len(details) <= 9
    cells = [
        [
            *_degrees(row.layout)[:-1],
            row.reason,
            time,
            bound,
            f"({details[row.detail]})" if shown else row.detail,
        ]
        for row, time, bound in zip(rows, times, bounds, strict=True)
    ]
    parts = _titled(f"Rejected layouts ({len(rows)})", aligned(header, cells, left=[5, 6, 9]))[:-1]
    if shown:
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
    flags = " ".join(f"{flag} {value}".strip() for flag, value in suggestion.arguments.items())
    result = ""
    if suggestion.step_time_ms is not None:
        result = f"; step time {format_ms(suggestion.step_time_ms)}"
    return f"- {suggestion.change} [{flags}]{result}"


def _notes(plan: Plan, width: int) -> list[RenderableType]:
    notes = list(plan.notes)
    if plan.status is Status.FEASIBLE and plan.objective is not Objective.BOTTLENECK:
        reason = plan.termination.reason if plan.termination else ""
        limit = {"time_limit": "the time limit", "work_limit": "the work limit"}.get(reason)
        if limit is not None:
            notes.append(f"not proven optimal: {limit} ended the proof")
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
