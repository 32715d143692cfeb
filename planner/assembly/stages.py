"""One rank of a plan: its layers, times and memory by named term."""

from __future__ import annotations

from typing import Any

from planner.assembly.priced import Priced, pieces
from planner.cost.layers import weakest
from planner.cost.stage_table import RecomputeChoice
from planner.plans import Stage, Verdict
from planner.schedule_rules import RULES
from planner.schedules.step import StepEvaluation
from planner.specs import Origin, Recompute, Schedule

__all__ = ["UPPER_SHARE", "assemble_stage", "verdict_of"]

UPPER_SHARE: dict[Origin, float] = {
    Origin.MEASURED: 0.05,
    Origin.INTERPOLATED: 0.08,
    Origin.CALIBRATED: 0.08,
    Origin.FORMULA: 0.10,
}
"""What the upper bound of a stage's memory adds to activations, workspace and buffers, by origin.

States are exact; activation formulas were 4 % off on average and 14 % at worst against measured
peaks (Zero Bubble paper, tables 4, 8 and 9, 29 runs), so 10 % separates fits from tight."""


def assemble_stage(priced: Priced, rank: int, evaluation: StepEvaluation) -> Stage:
    """What one rank holds and costs a micro-batch."""
    problem, pricer = priced.problem, priced.pricer
    intervals = pieces(problem, rank, evaluation.cuts)
    choice = evaluation.choices[rank]
    chunks = tuple(
        tuple(
            pricer.model.layers[layer].name
            for block in range(start, end)
            for layer in pricer.chain.blocks[block]
        )
        for start, end in intervals
    )
    named = {
        "rank": rank,
        "layers": tuple(name for chunk in chunks for name in chunk),
        "chunks": chunks,
    }
    held = problem.rank_stages[rank] if problem.is_grouped else (rank,)
    alike = (
        tuple(tuple(priced.kinds[start:end]) for start, end in intervals),
        choice,
        tuple(evaluation.costs.forward[s] for s in held),
        tuple(evaluation.costs.backward[s] for s in held),
        tuple(evaluation.costs.weight_gradient[s] for s in held),
        evaluation.communication[rank],
        evaluation.in_flight[rank],
        evaluation.held[rank] if evaluation.held else None,
        evaluation.exposed_reduction[rank],
        evaluation.optimizer[rank],
        int(problem.budget_bytes[rank]),
    )
    known = priced.assembled.get(alike)
    if known is None:
        known = priced.assembled[alike] = _assembled(priced, rank, evaluation, intervals, named)
        return known
    return known.model_copy(update=named)


def _assembled(
    priced: Priced,
    rank: int,
    evaluation: StepEvaluation,
    intervals: list[tuple[int, int]],
    named: dict[str, Any],
) -> Stage:
    problem, pricer = priced.problem, priced.pricer
    choice = evaluation.choices[rank]
    ms = pricer.quantum.ms
    held = problem.rank_stages[rank] if problem.is_grouped else (rank,)
    memory = _memory_terms(priced, rank, evaluation)
    total = sum(memory.values())
    blocks = [block for start, end in intervals for block in range(start, end)]
    origin = weakest(*{priced.blocks.origins[block] for block in blocks})
    upper = total + int(
        UPPER_SHARE[origin]
        * sum(memory[term] for term in ("activations", "logits", "workspace", "buffers"))
    )
    budget = int(problem.budget_bytes[rank])
    weight = sum(evaluation.costs.weight_gradient[s] for s in held)
    backward = sum(evaluation.costs.backward[s] for s in held)
    # A micro-batch passes one of a two-way rank's two stages: what it costs there on average.
    passes = 2 if RULES[problem.schedule].two_way else 1
    exposed = evaluation.exposed_reduction[rank]
    reduction = priced.total("reduction", intervals)
    reduction += problem.reduction_latency if reduction else 0
    tensor = priced.total("tensor_parallel", intervals)
    recomputed = choice.layers
    if choice.mode in (Recompute.FULL, Recompute.LAYERS):
        recomputed = sum(
            _recomputed_layers(priced, start, end, None if problem.is_grouped else choice.layers)
            for start, end in intervals
        )
    return Stage(
        **named,
        recompute=choice.mode,
        recomputed_layers=recomputed,
        forward_ms=ms(sum(evaluation.costs.forward[s] for s in held)) / passes,
        backward_ms=ms(backward) / passes,
        input_gradient_ms=ms(backward - weight) / passes,
        weight_gradient_ms=ms(weight) / passes,
        recompute_ms=ms(choice.extra) / passes,
        communication_ms=ms(evaluation.communication[rank]),
        tensor_parallel_ms=ms(tensor) / passes,
        in_flight=evaluation.in_flight[rank],
        memory_bytes=total,
        memory=memory,
        memory_upper_bytes=upper,
        budget_bytes=budget,
        verdict=verdict_of(total, upper, budget),
        exposed_reduction_ms=ms(exposed),
        hidden_reduction_ms=ms(max(0, reduction - exposed)),
        optimizer_ms=ms(evaluation.optimizer[rank]),
        origin=origin,
    )


def _recomputed_layers(priced: Priced, start: int, end: int, count: int | None) -> int:
    """Layers recomputed in full of an interval, of whose able blocks the first ``count`` are."""
    able = int(priced.problem.recomputable[start:end].sum())
    mask = priced.problem.recomputed_mask(start, end, able if count is None else count)
    blocks = priced.pricer.chain.blocks
    return sum(len(blocks[start + offset]) for offset, on in enumerate(mask) if on)


def verdict_of(total: int, upper: int, budget: int) -> Verdict:
    """Whether an estimate and its upper bound fit."""
    if total > budget:
        return Verdict.OUT_OF_MEMORY
    return Verdict.FITS if upper <= budget else Verdict.TIGHT


def _interval_terms(
    priced: Priced, rank: int, start: int, end: int, choice: RecomputeChoice
) -> dict[str, int]:
    """``problem.memory_terms``, computed once for intervals that differ in the depth alone."""
    depth = int(priced.problem.in_flight[rank])
    alike = (tuple(priced.kinds[start:end]), choice.mode, choice.layers)
    known = priced.at_depth_one.get(alike)
    if known is None:
        known = priced.problem.memory_terms(rank, start, end, choice.mode, choice.layers)
        known["activations"] //= max(1, depth)
        priced.at_depth_one[alike] = known
    return {**known, "activations": depth * known["activations"]}


def _memory_terms(priced: Priced, rank: int, evaluation: StepEvaluation) -> dict[str, int]:
    """The rank's memory with states and activations taken apart; the terms add up the same."""
    problem, states = priced.problem, priced.states
    intervals = pieces(problem, rank, evaluation.cuts)
    choice = evaluation.choices[rank]
    if evaluation.held:
        held = evaluation.held[rank]
        counts = held.counts
        terms = {
            "activations": held.activations,
            "workspace": held.workspace,
            "buffers": held.buffers,
        }
    else:
        start, end = intervals[0]
        terms = _interval_terms(priced, rank, start, end, choice)
        counts = (evaluation.in_flight[rank],)
        terms["activations"] += choice.memory_bytes - sum(terms.values())

    parameters, gradients, optimizer = (
        priced.total(name, intervals)
        for name in ("parameter_bytes", "gradient_bytes", "optimizer_bytes")
    )
    copies = parameters
    homes = [range(start, end) for start, end in intervals]
    for pair, once in zip(states.tied, states.tied_states, strict=True):
        if all(any(block in home for home in homes) for block in (pair.first, pair.second)):
            parameters -= once.parameters
            gradients -= once.gradients
            optimizer -= once.optimizer
    logits = sum(
        count * priced.total("logits_bytes", [interval])
        for count, interval in zip(counts, intervals, strict=True)
    )
    found = {
        "parameters": parameters,
        "gradients": gradients,
        "optimizer": optimizer,
        "activations": terms["activations"] - logits,
        "logits": logits,
        "workspace": terms["workspace"],
        "buffers": terms["buffers"],
    }
    # Copies of the weights that asynchronous schedules keep: in the table they are part of what
    # a micro-batch in flight holds (PipeDream) or of the states (2BW).
    if priced.layout.schedule is Schedule.PIPEDREAM:
        found["weight_versions"] = (counts[0] - 1) * copies
        found["activations"] -= counts[0] * copies
    elif priced.layout.schedule is Schedule.PIPEDREAM_2BW:
        found["weight_versions"] = choice.memory_bytes - sum(found.values())
    return found
