"""Why: what limits a plan, and for "does not fit" the nearest changes that do, each one tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from planner.assembly import slowest_stage, step_breakdown, unfitting_plan
from planner.cost.pricing import Pricer
from planner.cost.question import partition_question, plan_pricer
from planner.deadlines import NEVER, OutOfTimeError, late, poll, within
from planner.errors import InputError, PlanFileError
from planner.plans import Explanation, Infeasible, Layout, Plan, Stage, Status, Suggestion
from planner.schedule_rules import RULES
from planner.schedules.grouping import cannot_fit
from planner.schedules.simulate import RECURRENT
from planner.search.bounding import SpaceBounds
from planner.search.partition import solve_partition
from planner.search.run import SearchLimits, search_layouts
from planner.search.space import LayoutSpace, enumerate_layouts
from planner.shortfalls import grouped_shortfall, shortfall_of
from planner.solvers.chain import Shortfall, least_shortfall
from planner.specs import Cluster, Model, Objective, PartitionSetup, Recompute, Schedule, Training
from planner.units import format_bytes, format_ms, format_ranges

__all__ = ["closest_setup", "explain_plan", "partition_misfit", "plan_misfit"]

_MOST_SUGGESTIONS = 5
_MOST_TRIED = 300
_OUT_OF_TIME = Infeasible(
    constraint="memory",
    message="out of memory: no cut fits the budget of every rank; the time limit ended the search "
    "for how much is missing",
)
_MOST_HALVINGS = 5
_SHORTEST_SEQUENCE = 512
_QUICK = SearchLimits(nodes_per_layout=1)


# --- what limits a plan ------------------------------------------------------------------------


def explain_plan(plan: Plan) -> Explanation:
    """What the step time of a priced plan consists of, and what binds it.

    Raises
    ------
    PlanFileError
        The plan says that nothing fits, and not why.
    """
    if plan.status is Status.INFEASIBLE:
        if plan.infeasible is None:
            raise PlanFileError(
                "says that nothing fits and not why: infeasible is missing",
                fix="ask for the plan again",
            )
        return Explanation(headline=plan.infeasible.message, infeasible=plan.infeasible)
    if plan.status is Status.UNKNOWN or not plan.stages:
        return Explanation(headline="no plan was found in the time given")
    parts = step_breakdown(plan)
    total = plan.step_time_ms or 1.0
    slowest = slowest_stage(plan)
    loads = [s.forward_ms + s.backward_ms for s in plan.stages]
    findings = [
        f"rank {slowest.rank} is the slowest stage: {format_ms(slowest.forward_ms)} forward and "
        f"{format_ms(slowest.backward_ms)} backward per micro-batch, "
        f"{100 * (max(loads) / (sum(loads) / len(loads)) - 1):.1f} % above the average stage"
    ]
    for part, value in sorted(parts.items(), key=lambda item: -item[1]):
        if part != "compute" and value > 0.005 * total:
            findings.append(f"{part}: {format_ms(value)}, {100 * value / total:.1f} % of the step")
    findings += _bubble_findings(plan)
    findings += _transfer_findings(plan)
    findings += _memory_findings(plan)
    largest = max(parts, key=lambda part: parts[part])
    losses = {part: value for part, value in parts.items() if part != "compute"}
    worst = max(losses, key=lambda part: losses[part])
    headline = f"{largest} takes {100 * parts[largest] / total:.1f} % of the step"
    if losses[worst] > 0:
        headline += f"; the largest loss is {worst}, {100 * losses[worst] / total:.1f} %"
    return Explanation(headline=headline, breakdown_ms=parts, findings=tuple(findings))


def _bubble_findings(plan: Plan) -> list[str]:
    stages, count = plan.layout.pp, plan.layout.num_microbatches
    if stages == 1 or plan.bubble_fraction is None:
        return []
    if RULES[plan.layout.schedule].asynchronous:
        idle = 100 * plan.bubble_fraction
        return [
            f"ranks idle {idle:.1f} % of the time beside the slowest; the pipeline never drains"
        ]
    ideal = (stages - 1) / (count + stages - 1)
    yardstick = "equal stages with free transfers would idle"
    if plan.layout.schedule not in RECURRENT:
        yardstick = "1f1b on equal stages with free transfers would idle"
    text = (
        f"ranks idle {100 * plan.bubble_fraction:.1f} % of the makespan; {yardstick} "
        f"(P-1)/(M+P-1) = {100 * ideal:.1f} %"
    )
    return [text]


def _transfer_findings(plan: Plan) -> list[str]:
    """What waiting for pipeline transfers costs, where it is worth a word."""
    waiting = sum(group.exposed_ms for group in plan.communication if group.kind == "pipeline")
    total = plan.step_time_ms or 0.0
    if waiting <= 0.01 * total:
        return []
    text = (
        f"waiting for transfers between stages costs {format_ms(waiting)} of it, "
        f"{100 * waiting / total:.1f} % of the step: compute does not hide them"
    )
    if plan.layout.schedule is Schedule.ONE_F_ONE_B:
        text += "; 1f1b waits for them every turn, gpipe and 1f1b-eager less"
    return [text]


def _memory_findings(plan: Plan) -> list[str]:
    fullest = max(plan.stages, key=lambda s: (s.memory_bytes / max(1, s.budget_bytes), -s.rank))
    if not fullest.is_limited:
        return []
    left = fullest.budget_bytes - fullest.memory_bytes
    terms = sorted(fullest.memory.items(), key=lambda item: -item[1])[:3]
    named = ", ".join(f"{name} {format_bytes(size)}" for name, size in terms)
    findings = [
        f"rank {fullest.rank} is the fullest: {format_bytes(fullest.memory_bytes)} of "
        f"{format_bytes(fullest.budget_bytes)} ({format_bytes(left)} left): {named}"
    ]
    recomputing = [s.rank for s in plan.stages if s.recompute is not Recompute.NONE]
    if recomputing:
        ranks = f"rank{'s' if len(recomputing) > 1 else ''} {format_ranges(recomputing)}"
        findings.append(f"memory forces recompute on {ranks}")
    return findings


# --- nothing fits: partition -------------------------------------------------------------------


def partition_misfit(
    model: Model,
    setup: PartitionSetup,
    cluster: Cluster | None,
    objective: Objective,
) -> tuple[Infeasible, tuple[Stage, ...]]:
    """The tightest constraint of a partition that does not fit, and changes that fit."""
    pricer, layout = partition_question(model, setup, cluster)
    shortfall = shortfall_of(pricer.problem(layout))
    if shortfall is None and late():
        return _OUT_OF_TIME, ()
    stages = _stages_at(pricer, layout, shortfall)
    suggestions: list[Suggestion] = []
    for change, arguments, changed in _partition_changes(setup, shortfall, pricer):
        if len(suggestions) >= _MOST_SUGGESTIONS or late():
            break
        try:
            trial_pricer, trial_layout = partition_question(model, changed, cluster)
            found = solve_partition(trial_pricer, trial_layout, objective, _QUICK)
        except (InputError, OutOfTimeError):
            continue
        if found is not None:
            suggestions.append(
                Suggestion(
                    change=change,
                    arguments=arguments,
                    step_time_ms=found.step_time_ms,
                    bottleneck_ms=found.bottleneck_ms,
                )
            )
    return _infeasible(pricer, shortfall, layout, tuple(suggestions)), stages


def closest_setup(
    model: Model, setups: Sequence[PartitionSetup], cluster: Cluster | None
) -> PartitionSetup:
    """Of set-ups that all do not fit, the one that lacks the least; the first of equal ones."""
    lacking: list[tuple[int, int]] = []
    for number, setup in enumerate(setups):
        if late():
            break
        pricer, layout = partition_question(model, setup, cluster)
        shortfall = shortfall_of(pricer.problem(layout))
        if shortfall is not None:
            lacking.append((shortfall.short_bytes, number))
    return setups[min(lacking)[1]] if lacking else setups[0]


def _partition_changes(
    setup: PartitionSetup, shortfall: Shortfall | None, pricer: Pricer
) -> Iterator[tuple[str, dict[str, str], PartitionSetup]]:
    def changed(**fields: object) -> PartitionSetup:
        return setup.model_copy(update=fields)

    if setup.memory_bytes is not None and shortfall is not None:
        need = setup.memory_bytes + shortfall.short_bytes
        yield (
            f"raise the memory limit to {_exact(need)}",
            {"--memory": f"{need}B"},
            changed(memory_bytes=need),
        )
    if Recompute.FULL not in setup.recompute:
        modes = (*setup.recompute, Recompute.FULL)
        yield (
            "allow full recompute",
            {"--recompute": ",".join(mode.value for mode in modes)},
            changed(recompute=modes),
        )
    if setup.schedule is not Schedule.ONE_F_ONE_B:
        yield (
            "use the 1f1b schedule, which keeps fewer micro-batches",
            {"--schedule": "1f1b"},
            changed(schedule=Schedule.ONE_F_ONE_B, vpp=None),
        )
    for stages in _more_stages(setup.num_stages, len(pricer.chain.blocks)):
        yield (
            f"cut into {stages} stages",
            {"--stages": str(stages)},
            changed(num_stages=stages),
        )
    depth = setup.num_microbatches
    while depth > 1:
        depth //= 2
        yield (
            f"run {depth} micro-batches a step",
            {"--microbatches": str(depth)},
            changed(num_microbatches=depth),
        )


def _more_stages(stages: int, blocks: int) -> Iterator[int]:
    step = 1
    while stages + step <= blocks:
        yield stages + step
        step *= 2
    if stages < blocks:
        yield blocks


# --- nothing fits: plan ------------------------------------------------------------------------


def plan_misfit(
    model: Model,
    cluster: Cluster,
    training: Training,
    pricer: Pricer,
    space: LayoutSpace,
    bounds: SpaceBounds,
) -> tuple[Infeasible, Layout, tuple[Stage, ...]]:
    """The layout that comes closest to fitting, by how much it misses, and changes that fit."""
    layout, shortfall = _closest(pricer, space, bounds)
    if shortfall is None and late():
        return _OUT_OF_TIME, layout, ()
    stages = _stages_at(pricer, layout, shortfall)
    suggestions: list[Suggestion] = []
    solved_by: set[str] = set()
    for change, flag, value, trial_cluster, trial_training in _plan_changes(cluster, training):
        if len(suggestions) >= _MOST_SUGGESTIONS or late():
            break
        if flag in solved_by:
            continue  # a smaller step of the same change fits already
        step_ms = _try_plan(model, trial_cluster, trial_training)
        if step_ms is not None:
            solved_by.add(flag)
            suggestions.append(
                Suggestion(change=change, arguments={flag: value}, step_time_ms=step_ms)
            )
    larger = None if late() else _more_nodes(model, cluster, training)
    if larger is not None:
        suggestions.append(larger)
    return _infeasible(pricer, shortfall, layout, tuple(suggestions)), layout, stages


def _closest(
    pricer: Pricer, space: LayoutSpace, bounds: SpaceBounds
) -> tuple[Layout, Shortfall | None]:
    """The layout with the smallest shortfall, by the proven lack of all its ranks together.

    Exact unless more than ``_MOST_TRIED`` layouts have to be priced, or time runs out.
    """
    lack = bounds.memory_short
    floors = np.maximum(1, -(-lack // space.pp))
    order = np.lexsort([-space.tp, -space.tp * space.pp, space.microbatch_size, floors])
    best: tuple[int, Layout, Shortfall] | None = None
    for index in order[:_MOST_TRIED].tolist():
        if best is not None and floors[index] >= best[0]:
            break
        if late():
            break
        layout = space.layout(index)
        try:
            problem = pricer.problem(layout)
            grouped = problem.is_grouped
            shortfall = (
                grouped_shortfall(problem, thorough=False) if grouped else least_shortfall(problem)
            )
        except InputError:
            continue
        except OutOfTimeError:
            break
        if shortfall is not None and (best is None or shortfall.short_bytes < best[0]):
            best = (shortfall.short_bytes, layout, shortfall)
    if best is None:
        return space.layout(int(order[0])), None
    return best[1], best[2]


def _plan_changes(
    cluster: Cluster, training: Training
) -> Iterator[tuple[str, str, str, Cluster, Training]]:
    """(change, flag, its value, changed cluster, changed training), the least invasive first."""

    def with_training(**fields: object) -> Training:
        return training.model_copy(update=fields)

    if Recompute.FULL not in training.recompute:
        modes = (*training.recompute, Recompute.FULL)
        text = ",".join(mode.value for mode in modes)
        yield "allow full recompute", "--recompute", text, cluster, with_training(recompute=modes)
    if Schedule.ONE_F_ONE_B not in training.schedules:
        plain = with_training(
            schedules=(Schedule.ONE_F_ONE_B,), pins=training.pins.model_copy(update={"vpp": None})
        )
        change = "use the 1f1b schedule, which keeps fewer micro-batches"
        yield change, "--schedule", "1f1b", cluster, plain
    if not training.sharded_optimizer:
        sharded = with_training(sharded_optimizer=True)
        change = "shard the optimizer state over data-parallel ranks"
        yield change, "--sharded-optimizer", "", cluster, sharded
    if not training.sequence_parallel:
        parallel = with_training(sequence_parallel=True)
        change = "shard activations over tensor-parallel ranks (sequence parallel)"
        yield change, "--sequence-parallel", "", cluster, parallel
    pins = training.pins
    for name in ("microbatch_size", "dp", "tp", "pp"):
        pinned = getattr(pins, name)
        if pinned is not None:
            free = with_training(pins=pins.model_copy(update={name: None}))
            flag = "--" + name.replace("_", "-")
            yield f"let {name} be searched instead of {pinned}", flag, "(omit)", cluster, free
    for part in (2, 4, 8):
        length = training.sequence_length // part
        if length >= _SHORTEST_SEQUENCE:
            change = f"train on sequences of {length} tokens"
            shorter = with_training(sequence_length=length)
            yield change, "--seq-len", str(length), cluster, shorter
    if not training.allow_cross_domain and cluster.num_gpus > cluster.nvlink_domain:
        across = with_training(allow_cross_domain=True)
        change = "let tensor-parallel groups leave the nvlink domain"
        yield change, "--allow-cross-domain", "", cluster, across


def _more_nodes(model: Model, cluster: Cluster, training: Training) -> Suggestion | None:
    """The fewest more nodes that fit: doubled until they do, then halved in between."""

    def attempt(nodes: int) -> float | None:
        return _try_plan(model, cluster.model_copy(update={"nodes": nodes}), training)

    too_few, enough, step_ms = cluster.nodes, cluster.nodes, None
    while step_ms is None and enough < 32 * cluster.nodes:
        too_few, enough = enough, 2 * enough
        step_ms = attempt(enough)
    if step_ms is None:
        return None
    for _ in range(_MOST_HALVINGS):
        middle = (too_few + enough) // 2
        if middle == too_few:
            break
        found = attempt(middle)
        if found is None:
            too_few = middle
        else:
            enough, step_ms = middle, found
    gpus = enough * cluster.gpus_per_node
    return Suggestion(
        change=f"use {enough} nodes ({gpus} GPUs)",
        arguments={"--nodes": str(enough)},
        step_time_ms=step_ms,
    )


def _try_plan(model: Model, cluster: Cluster, training: Training) -> float | None:
    """Step time in ms of the best plan of a changed question; None where it does not fit."""
    try:
        poll()
        pricer = plan_pricer(model, cluster, training)
        space = enumerate_layouts(model, cluster, training, len(pricer.chain.blocks))
        result = search_layouts(pricer, space, limits=_QUICK)
    except (InputError, OutOfTimeError):
        return None
    if not result.ranking:
        return None
    return pricer.quantum.ms(result.ranking[0].step)


# --- shared ------------------------------------------------------------------------------------


def _stages_at(pricer: Pricer, layout: Layout, shortfall: Shortfall | None) -> tuple[Stage, ...]:
    if shortfall is None:
        return ()
    with within(NEVER):
        return unfitting_plan(pricer, layout, shortfall.cuts)


def _infeasible(
    pricer: Pricer,
    shortfall: Shortfall | None,
    layout: Layout,
    suggestions: tuple[Suggestion, ...],
) -> Infeasible:
    if shortfall is None:
        return Infeasible(
            constraint="pins",
            message=f"no cut into {layout.pp} non-empty stages obeys the pins and colocations",
            suggestions=suggestions,
        )
    chain, names = pricer.chain, pricer.model.layers
    first = names[chain.blocks[shortfall.start][0]].name
    last = names[chain.blocks[shortfall.end - 1][-1]].name
    budget = int(pricer.problem(layout).budget_bytes[shortfall.stage])
    held = first if first == last else f"{first} .. {last}"
    grouped = RULES[layout.schedule].several_stages
    closest = "the least crowded cut that was found" if grouped else "the closest cut"
    held += " among others" if grouped else ""
    unproven = ""
    if grouped and not cannot_fit(pricer.problem(layout)):
        unproven = "; this was not proven: another cut may fit"
    return Infeasible(
        constraint="memory",
        message=(
            f"out of memory: {closest} of {layout.short()} still lacks "
            f"{_exact(shortfall.short_bytes)} on rank "
            f"{shortfall.stage}, which holds {held} and needs "
            f"{format_bytes(budget + shortfall.short_bytes)} of {format_bytes(budget)}{unproven}"
        ),
        rank=shortfall.stage,
        short_bytes=shortfall.short_bytes,
        suggestions=suggestions,
    )


def _exact(size_bytes: int) -> str:
    """A size to read, and to the byte where that says more."""
    text = format_bytes(size_bytes)
    return text if size_bytes < 1024 else f"{text} ({size_bytes} bytes)"
