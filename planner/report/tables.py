"""A plan as terminal tables (rich): what an engineer reads instead of the JSON."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.plans import (
    Candidate,
    Explanation,
    Infeasible,
    Plan,
    Rejected,
    Stage,
    Status,
    Suggestion,
    Verdict,
    Violation,
)
from planner.specs import Objective, Recompute
from planner.units import format_bytes, format_ms

__all__ = [
    "candidates_table",
    "explanation_view",
    "plan_view",
    "rejected_table",
    "violations_view",
]

_VERDICT = {
    Verdict.FITS: ("fits", "green"),
    Verdict.TIGHT: ("tight", "yellow"),
    Verdict.OUT_OF_MEMORY: ("out of memory", "bold red"),
}
_STATUS_STYLE = {
    Status.OPTIMAL: "bold green",
    Status.FEASIBLE: "bold yellow",
    Status.INFEASIBLE: "bold red",
    Status.UNKNOWN: "bold red",
}
NO_LIMIT_BYTES = 2**59


def plan_view(plan: Plan) -> RenderableType:
    """The whole answer: headline, figures, stages, runners-up, notes."""
    parts: list[RenderableType] = [_headline(plan)]
    if plan.status is Status.UNKNOWN:
        parts.append(Text("no plan was found before the time limit; nothing is proven"))
        return Group(*parts)
    if plan.infeasible is not None:
        parts += _infeasible_view(plan.infeasible)
        if plan.stages:
            parts += [Text(""), Text(f"closest layout: {plan.layout.short()}"), _stage_table(plan)]
        return Group(*parts)
    parts += [_figures(plan), _stage_table(plan)]
    if plan.communication:
        parts.append(_communication_table(plan))
    if plan.runners_up:
        parts.append(candidates_table("Runners-up", plan.runners_up))
    if plan.pareto:
        parts.append(candidates_table("Pareto set (step time, peak memory, GPUs)", plan.pareto))
    if plan.rejected:
        parts.append(rejected_table(plan.rejected))
    parts += _notes(plan)
    return Group(*parts)


def _headline(plan: Plan) -> Text:
    text = Text()
    text.append(plan.model, style="bold")
    if plan.cluster:
        text.append(f" on {plan.cluster}")
        if plan.num_gpus > 1 or plan.idle_gpus:
            text.append(f", {plan.num_gpus} GPUs")
        if plan.idle_gpus:
            text.append(f" ({plan.idle_gpus} idle)")
    text.append(": ")
    text.append(plan.status.value, style=_STATUS_STYLE[plan.status])
    if plan.gap is not None and plan.bound_ms is not None:
        covers = {
            "space": "all cuts of all layouts",
            "cuts": "all cuts",
            "block_cuts": "all cuts between blocks",
            "file_order_cuts": "all cuts in the order of the file",
        }
        scope = covers.get(plan.bound_covers, plan.bound_covers)
        if plan.status is Status.OPTIMAL:
            text.append(f", proven over {scope}")
        text.append(f" (bound {format_ms(plan.bound_ms)}, gap {100 * plan.gap:.2g} %)")
    return text


def _figures(plan: Plan) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column()
    layout = plan.layout
    shape = f"dp {layout.dp} x pp {layout.pp} x tp {layout.tp}"
    grid.add_row(
        "layout",
        f"{shape}, {layout.num_microbatches} micro-batches of {layout.microbatch_size}, "
        f"schedule {layout.schedule.value}, recompute {layout.recompute}",
    )
    if plan.step_time_ms is not None and plan.step_terms is not None:
        terms = plan.step_terms
        tail = [
            ("gradient reduction", terms.exposed_reduction_ms),
            ("optimizer", terms.optimizer_ms),
            ("fixed", terms.fixed_ms),
        ]
        named = "".join(f" + {name} {format_ms(value)}" for name, value in tail if value)
        grid.add_row(
            "step time",
            f"{format_ms(plan.step_time_ms)} = makespan {format_ms(terms.makespan_ms)}{named}"
            if named
            else f"{format_ms(plan.step_time_ms)} (simulated makespan)",
        )
    if plan.bottleneck_ms is not None:
        worst = max(
            plan.stages, key=lambda s: (s.forward_ms + s.backward_ms + s.communication_ms, -s.rank)
        )
        grid.add_row(
            "bottleneck",
            f"{format_ms(plan.bottleneck_ms)} per micro-batch on rank {worst.rank} (t + c)",
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
        grid.add_row("rates", ", ".join(rates))
    if plan.origins:
        grid.add_row(
            "figures from",
            ", ".join(f"{name} {100 * share:.0f} %" for name, share in plan.origins.items()),
        )
    if plan.certificate is not None:
        grid.add_row("search", _search_effort(plan))
    return Padding(grid, (0, 0, 1, 1))


def _search_effort(plan: Plan) -> str:
    certificate = plan.certificate
    assert certificate is not None
    effort = f"{certificate.probes} probes, {certificate.simulations} simulations"
    if certificate.nodes:
        effort += f", {certificate.nodes} branch-and-bound nodes"
    if certificate.layouts:
        exact = certificate.witness.get("layouts_with_exact_bottleneck", 0)
        effort = (
            f"{certificate.layouts} layouts bounded, {exact} balanced exactly, "
            f"{certificate.layouts_solved} solved, {effort}"
        )
    return effort


def _layers_text(stage: Stage) -> str:
    names = stage.layers
    if len(names) <= 2:
        return ", ".join(names)
    return f"{names[0]} .. {names[-1]} ({len(names)})"


def _stage_table(plan: Plan) -> Table:
    """One row a rank: layers, times, communication, in flight, memory of budget."""
    limited = any(stage.budget_bytes < NO_LIMIT_BYTES for stage in plan.stages)
    recomputing = any(stage.recompute is not Recompute.NONE for stage in plan.stages)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rank", justify="right")
    table.add_column("layers", overflow="fold")
    for name in ("F", "B", "comm."):
        table.add_column(name, justify="right", no_wrap=True)
    if recomputing:
        table.add_column("recompute")
    table.add_column("in flight", justify="right")
    table.add_column("memory of budget" if limited else "memory", justify="right")
    if limited:
        table.add_column("verdict")
    for stage in plan.stages:
        row: list[RenderableType] = [
            str(stage.rank),
            _layers_text(stage),
            format_ms(stage.forward_ms),
            format_ms(stage.backward_ms),
            format_ms(stage.communication_ms),
        ]
        if recomputing:
            row.append(_recompute_text(stage))
        row.append(str(stage.in_flight))
        if limited:
            share = 100 * stage.memory_bytes / stage.budget_bytes if stage.budget_bytes else 0.0
            row.append(
                f"{format_bytes(stage.memory_bytes)} of {format_bytes(stage.budget_bytes)} "
                f"({share:.0f} %)"
            )
            word, style = _VERDICT[stage.verdict]
            row.append(Text(word, style=style))
        else:
            row.append(format_bytes(stage.memory_bytes))
        table.add_row(*row)
    return table


def _recompute_text(stage: Stage) -> str:
    if stage.recompute is Recompute.LAYERS:
        return f"first {stage.recomputed_layers}"
    return stage.recompute.value


def _communication_table(plan: Plan) -> Table:
    table = Table(title="Communication", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("group")
    table.add_column("ranks", justify="right")
    table.add_column("wires")
    table.add_column("sent by a rank per step", justify="right")
    table.add_column("hidden", justify="right")
    table.add_column("exposed", justify="right")
    for group in plan.communication:
        table.add_row(
            group.kind,
            str(group.ranks),
            group.tier.value,
            format_bytes(group.bytes_per_step),
            format_ms(group.hidden_ms),
            format_ms(group.exposed_ms),
        )
    return table


def candidates_table(title: str, candidates: Iterable[Candidate]) -> Table:
    """Runners-up or a Pareto set."""
    rows = list(candidates)
    reasons = any(candidate.why for candidate in rows)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("layout")
    table.add_column("step time", justify="right", no_wrap=True)
    table.add_column("peak memory", justify="right", no_wrap=True)
    table.add_column("GPUs", justify="right")
    if reasons:
        table.add_column("why it loses", overflow="fold")
    for candidate in rows:
        row = [
            f"{candidate.layout.short()}, recompute {candidate.layout.recompute}",
            format_ms(candidate.step_time_ms),
            format_bytes(candidate.peak_memory_bytes),
            str(candidate.num_gpus),
        ]
        if reasons:
            row.append(candidate.why)
        table.add_row(*row)
    return table


def rejected_table(rejected: Iterable[Rejected]) -> Table:
    """Layouts that lost, with the reason."""
    table = Table(
        title="Rejected layouts", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("layout")
    table.add_column("reason")
    table.add_column("step time", justify="right")
    table.add_column("bound", justify="right")
    table.add_column("detail", overflow="fold")
    for row in rejected:
        table.add_row(
            row.layout.short(),
            row.reason,
            format_ms(row.step_time_ms) if row.step_time_ms is not None else "",
            format_ms(row.bound_ms) if row.bound_ms is not None else "",
            row.detail,
        )
    return table


def _infeasible_view(infeasible: Infeasible) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(infeasible.message)]
    if infeasible.suggestions:
        parts.append(Text(""))
        parts.append(Text("Each of these was tried and fits:", style="bold"))
        parts += [_suggestion_text(suggestion) for suggestion in infeasible.suggestions]
    else:
        parts.append(Text("no nearby change was found that fits"))
    return parts


def _suggestion_text(suggestion: Suggestion) -> Text:
    flags = " ".join(f"{flag} {value}".strip() for flag, value in suggestion.arguments.items())
    result = ""
    if suggestion.step_time_ms is not None:
        result = f"; step time {format_ms(suggestion.step_time_ms)}"
    return Text(f"  - {suggestion.change} [{flags}]{result}")


def _notes(plan: Plan) -> list[RenderableType]:
    notes = list(plan.notes)
    if plan.status is Status.FEASIBLE and plan.objective is not Objective.BOTTLENECK:
        reason = plan.termination.reason if plan.termination else "work_limit"
        limit = {"time_limit": "the time limit", "work_limit": "the work limit"}.get(reason)
        if limit is not None:
            notes.append(f"not proven optimal: {limit} ended the proof")
    return [Text(f"note: {note}", style="dim") for note in notes]


def violations_view(violations: Iterable[Violation]) -> RenderableType:
    """What a judged plan says that is not so."""
    rows = list(violations)
    if not rows:
        return Text("verified: partition, prices, memory and bound hold", style="green")
    lines = [Text(f"{len(rows)} violation{'s' if len(rows) > 1 else ''}", style="bold red")]
    lines += [Text(f"  {row.code}: {row.message}") for row in rows]
    return Group(*lines)


def explanation_view(explanation: Explanation) -> RenderableType:
    """What limits a plan."""
    parts: list[RenderableType] = [Text(explanation.headline, style="bold")]
    if explanation.infeasible is not None:
        return Group(*parts, *_infeasible_view(explanation.infeasible)[1:])
    if explanation.breakdown_ms:
        total = sum(explanation.breakdown_ms.values())
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("part of the step")
        table.add_column("time", justify="right")
        table.add_column("share", justify="right")
        for part, value in explanation.breakdown_ms.items():
            table.add_row(part, format_ms(value), f"{100 * value / total:.1f} %")
        table.add_section()
        table.add_row("step time", format_ms(total), "100 %")
        parts.append(table)
    parts += [Text(f"- {finding}") for finding in explanation.findings]
    return Group(*parts)
