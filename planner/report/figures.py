"""The head of a plan: what was asked, what was found, how well it is proved, and its figures."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from planner.plans import Layout, Plan, Status
from planner.report.text import counted, ms_column, wrap
from planner.schedule_rules import RULES
from planner.specs import Objective
from planner.units import format_ms

__all__ = ["figures", "headline"]

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


def headline(plan: Plan, width: int, judged: bool) -> Text:
    """Model, cluster, status and what is proven, in one sentence.

    Parameters
    ----------
    plan
        What was found.
    width
        Characters of a line.
    judged
        The plan was priced again and carries no proof of its own.
    """
    lead = plan.model
    if plan.cluster:
        lead += f" on {plan.cluster}"
        if plan.num_gpus > 1 or plan.idle_gpus:
            lead += f", {counted(plan.num_gpus, 'GPU')}"
        if plan.idle_gpus:
            lead += f" ({plan.idle_gpus} idle)"
    word = "priced again" if judged else plan.status.value
    rest = "" if judged else _proof_text(plan)
    folded = "\n".join(wrap(f"{lead}: {word}{rest}", width, "  "))
    text = Text(folded)
    text.stylize("bold", 0, len(plan.model))
    start = folded.find(word, len(lead))
    if start >= 0 and not judged:
        text.stylize(_STATUS_STYLE[plan.status], start, start + len(word))
    return text


def _proof_text(plan: Plan) -> str:
    """What is proven, in the units of the objective; empty where there is no bound."""
    rest = ""
    if plan.gap is None or plan.bound_ms is None:
        return rest
    fewest = plan.objective is Objective.FEWEST_GPUS
    ended = plan.termination.reason if plan.termination else ""
    if fewest and ended not in ("time_limit", "stopped"):
        rest = f", no layout fits fewer than {counted(plan.num_gpus, 'GPU')}"
    if plan.status is Status.OPTIMAL:
        where = f" on {counted(plan.num_gpus, 'GPU')}" if fewest else ""
        scope = _SCOPES.get(plan.bound_covers, plan.bound_covers)
        rest += f", {'step time ' if fewest else ''}proven over {scope}{where}"
    if plan.objective is Objective.TOKENS_PER_DOLLAR:
        if plan.tokens_per_dollar is not None and plan.gap < 1:
            most = plan.tokens_per_dollar / (1 - plan.gap)
            bound = f"at most {most:,.0f} tokens/$"
        else:
            bound = f"at least {_gpu_seconds(plan.bound_ms, plan.num_gpus)}"
    else:
        bound = f"bound {format_ms(plan.bound_ms)}"
    return f"{rest} ({bound}, gap {100 * plan.gap:.2g} %)"


def _gpu_seconds(step_ms: float, gpus: int) -> str:
    return f"{step_ms / 1e3 * gpus:,.4g} GPU-seconds a step"


def figures(plan: Plan, width: int) -> list[RenderableType]:
    """Layout, training, times, rates and effort, a labelled line each.

    Parameters
    ----------
    plan
        With stages.
    width
        Characters of a line.
    """
    rows = [("layout", _layout_text(plan.layout))]
    training = _training_text(plan)
    if training:
        rows.append(("training", training))
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
    elif plan.objective is Objective.TOKENS_PER_DOLLAR and plan.step_time_ms is not None:
        rates.append(_gpu_seconds(plan.step_time_ms, plan.num_gpus))
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


def _makespan_word(plan: Plan) -> str:
    if not RULES[plan.layout.schedule].asynchronous:
        return "simulated makespan"
    period = format_ms((plan.step_time_ms or 0.0) / plan.layout.num_microbatches)
    return f"{plan.layout.num_microbatches} periods of {period}, the steady state"


def _layout_text(layout: Layout) -> str:
    chunks = f" x vpp {layout.vpp}" if layout.vpp > 1 else ""
    return (
        f"dp {layout.dp} x pp {layout.pp} x tp {layout.tp}{chunks}, "
        f"{counted(layout.num_microbatches, 'micro-batch').replace('batchs', 'batches')} of "
        f"{layout.microbatch_size}, schedule {layout.schedule.value}, recompute {layout.recompute}"
    )


def _training_text(plan: Plan) -> str:
    """What was assumed of the training run."""
    known = []
    if plan.global_batch_size is not None:
        known.append(f"global batch {plan.global_batch_size}")
    if plan.sequence_length is not None:
        own = " (the model's context length: no --seq-len was given)"
        known.append(
            f"sequence length {plan.sequence_length}{own if plan.sequence_length_assumed else ''}"
        )
    if plan.precision is not None:
        known.append(plan.precision.value)
    if plan.optimizer is not None:
        known.append(f"optimizer {plan.optimizer}")
    return ", ".join(known)


def _step_text(plan: Plan) -> str:
    terms = plan.step_terms
    assert terms is not None
    assert plan.step_time_ms is not None
    tail = [
        ("gradient reduction", terms.exposed_reduction_ms),
        ("optimizer", terms.optimizer_ms),
        ("fixed", terms.fixed_ms),
    ]
    parts = [(name, value) for name, value in tail if value]
    if not parts:
        return f"{format_ms(plan.step_time_ms)} ({_makespan_word(plan)})"
    # One unit for all, and a decimal more than a column has, so that the parts can be added.
    unit, _ = ms_column([plan.step_time_ms])
    scale, decimals = {"s": (1e-3, 3), "ms": (1.0, 1)}.get(unit, (1e3, 2))
    unit = unit if unit in ("s", "ms") else "us"
    total, makespan, *rest = (
        f"{scale * value:.{decimals}f}"
        for value in (plan.step_time_ms, terms.makespan_ms, *(value for _, value in parts))
    )
    named = "".join(f" + {name} {cell} {unit}" for (name, _), cell in zip(parts, rest, strict=True))
    return f"{total} {unit} = makespan {makespan} {unit}{named}"


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
