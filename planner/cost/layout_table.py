"""The stage table of one layout: what its schedule makes of the prices of a question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from planner import placement
from planner.cost.in_flight import allowed_recompute, in_flight_microbatches
from planner.cost.stage_table import ChainProblem
from planner.cost.tables import BlockTable, StateTable, refuse_long_steps, refuse_overflow
from planner.cost.weight_versions import weight_versions
from planner.errors import LayoutError, PinError
from planner.plans import Layout
from planner.schedule_rules import RULES, check_shape, stages_of_rank
from planner.specs import Schedule, Tier

if TYPE_CHECKING:
    from planner.cost.pricing import Pricer

__all__ = ["layout_problem", "stages_of_layout"]

I64 = NDArray[np.int64]


def stages_of_layout(layout: Layout) -> int:
    """Stages the chain is cut into: one a rank, or a rank's chunks."""
    return layout.pp if RULES[layout.schedule].two_way else layout.pp * layout.vpp


def layout_problem(pricer: Pricer, layout: Layout) -> ChainProblem:
    """The priced chain of one layout.

    Raises
    ------
    PinError
        Pins or colocations contradict each other or this number of stages.
    LayoutError
        The schedule does not run this shape, or none of the recompute modes asked for.
    """
    schedule, rules = layout.schedule, RULES[layout.schedule]
    check_shape(schedule, layout.pp, layout.num_microbatches, layout.vpp)
    modes = allowed_recompute(schedule, pricer.training.recompute)
    if not modes:
        raise LayoutError(
            f"{rules.title} keeps what W reads until W, so that full recompute saves nothing",
            fix="allow recompute none or selective",
        )
    stages = stages_of_layout(layout)
    grouped = rules.several_stages and stages_of_rank(schedule, layout.pp, layout.vpp)
    if grouped and any(layer.pin_stage is not None for layer in pricer.model.layers):
        raise PinError(
            f"pin_stage names a rank's only stage, and {rules.title} puts several on each",
            fix="drop the pins or use a schedule with one chunk a rank",
        )
    blocks = pricer.block_table(layout.tp, layout.microbatch_size)
    states = pricer.state_table(layout.tp, layout.dp, layout.microbatch_size)
    edges = _edges(pricer, layout, stages)
    windows = pricer.windows(stages)
    in_flight = in_flight_microbatches(schedule, stages, layout.num_microbatches)
    refuse_overflow(pricer.model, pricer.chain, blocks, states, _deepest(layout, in_flight))
    dearest = float(edges.forward.max(initial=0)) + float(edges.backward.max(initial=0))
    refuse_long_steps(blocks, states, dearest, layout.num_microbatches, stages)
    static, kept, kept_selective, kept_full = _held(layout, blocks, states)
    weight_gradient, reduction, update = _updates(pricer, layout, blocks, states)
    return ChainProblem(
        block_names=pricer.chain.names,
        num_stages=stages,
        num_microbatches=layout.num_microbatches,
        # One micro-batch has nothing to order.
        schedule=Schedule.GPIPE if schedule is Schedule.NAIVE else schedule,
        sends=pricer.training.sends,
        quantum_ms=str(pricer.quantum),
        forward=blocks.forward,
        input_gradient=blocks.input_gradient,
        weight_gradient=weight_gradient,
        selective_extra=blocks.selective_extra,
        full_extra=blocks.full_extra,
        recomputable=blocks.recomputable,
        recompute_modes=modes,
        edge_forward=edges.forward,
        edge_backward=edges.backward,
        boundary_tier=edges.rows,
        static_bytes=static,
        kept_bytes=kept,
        kept_selective_bytes=kept_selective,
        kept_full_bytes=kept_full,
        transient_bytes=blocks.transient_bytes,
        transient_full_bytes=blocks.transient_full_bytes,
        buffer_bytes=blocks.buffer_bytes,
        tied=states.tied,
        in_flight=np.array(in_flight, np.int64),
        budget_bytes=np.full(stages, pricer.cluster.budget_bytes, np.int64),
        legal_cut=windows.legal_cut,
        stage_low=windows.stage_low,
        stage_high=windows.stage_high,
        reduction=reduction,
        reduction_latency=states.reduction_latency if reduction.any() else 0,
        overlap_reduction=pricer.training.overlap_gradient_reduction,
        update=update,
        fixed_tail=pricer.fixed_tail(layout),
        rank_stages=grouped or (),
        mirrored_tier=edges.mirrored,
        tensor_parallel=blocks.tensor_parallel,
    )


def _deepest(layout: Layout, in_flight: list[int]) -> int:
    """Activations that a rank may come to hold, for the refusal of absurd sizes."""
    if RULES[layout.schedule].several_stages or layout.schedule is Schedule.ZB_AUTO:
        return min(layout.num_microbatches, 4 * layout.pp)
    return max(in_flight)


# --- what a rank holds -------------------------------------------------------------------------


def _held(layout: Layout, blocks: BlockTable, states: StateTable) -> tuple[I64, I64, I64, I64]:
    """Bytes held always, and per micro-batch in flight under each recompute mode.

    PipeDream stashes the weights of every micro-batch in flight (Narayanan et al. 2019, section
    3.3), so a copy goes with the activation instead of the states. 2BW keeps a fixed number.
    """
    static = states.static_bytes
    kept = (blocks.kept_bytes, blocks.kept_selective_bytes, blocks.kept_full_bytes)
    weights = states.parameter_bytes
    if layout.schedule is Schedule.PIPEDREAM:
        static = static - weights
        kept = (kept[0] + weights, kept[1] + weights, kept[2] + weights)
    elif layout.schedule is Schedule.PIPEDREAM_2BW:
        copies = int(weight_versions(layout.schedule, layout.pp, layout.num_microbatches).max())
        static = static + (copies - 1) * weights
    return (static, *kept)


def _updates(
    pricer: Pricer, layout: Layout, blocks: BlockTable, states: StateTable
) -> tuple[I64, I64, I64]:
    """W, gradient reduction and optimizer time of each block.

    PipeDream reduces and updates after every micro-batch, which makes both part of its pace. The
    two replicas of a stage in a two-way schedule reduce their gradients with each other too.
    """
    weight_gradient, reduction, update = blocks.weight_gradient, states.reduction, states.update
    if layout.schedule is Schedule.PIPEDREAM:
        nothing = np.zeros_like(reduction)
        return weight_gradient + reduction + update, nothing, nothing
    if RULES[layout.schedule].two_way and pricer.tail and pricer.training.optimizer != "none":
        sizes = states.gradient_bytes.tolist()
        tier = _wrap_tier(pricer, layout)
        once = np.array([pricer.transfer(size, tier) if size else 0 for size in sizes], np.int64)
        reduction = reduction + once
    return weight_gradient, reduction, update


# --- borders of stages -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Edges:
    forward: I64
    """Shape (T, N+1)."""
    backward: I64
    rows: I64
    """Row of each border of two stages (S-1)."""
    mirrored: I64 | None = None


def _wrap_tier(pricer: Pricer, layout: Layout) -> Tier:
    """Wires between the first and the last rank."""
    if pricer.fixed_link is not None:
        return Tier.CLUSTER
    return placement.tied_group(pricer.cluster, layout.dp, layout.tp, layout.pp).tier


def _edges(pricer: Pricer, layout: Layout, stages: int) -> _Edges:
    """Costs of a cut at every position by link, and which link each border of stages uses."""
    count = len(pricer.chain.blocks)
    if stages == 1:
        nothing = np.zeros((1, count + 1), np.int64)
        return _Edges(nothing, nothing, np.zeros(0, np.int64))
    tiers: list[Tier | None] = list(pricer.boundary_tiers(layout))
    rules = RULES[layout.schedule]
    borders = tiers
    if rules.folded:
        borders = [*tiers, None, *reversed(tiers)]
    elif stages > layout.pp:
        wrap = _wrap_tier(pricer, layout) if layout.pp > 1 else None
        turn = [*tiers, wrap]
        borders = [turn[border % layout.pp] for border in range(stages - 1)]
    used = tuple(dict.fromkeys(tier for tier in borders if tier is not None))
    forward = backward = np.zeros((0, count + 1), np.int64)
    if used:
        forward, backward = pricer.edge_rows(layout.tp, layout.microbatch_size, used)
    if None in borders:  # both stages on one rank: nothing is sent
        free = np.zeros((1, count + 1), np.int64)
        forward, backward = np.concatenate([forward, free]), np.concatenate([backward, free])
    row = {tier: index for index, tier in enumerate(used)}
    rows = np.array([len(used) if t is None else row[t] for t in borders], np.int64)
    return _Edges(forward, backward, rows, rows[::-1].copy() if rules.two_way else None)
