"""The judge: re-prices a plan from the specs and recomputes its bound, without any solver.

Every solver, executor, writer and service test ends here. Nothing of a plan is believed but its
layout and which layers each stage holds.

What is recomputed of a bound, and what is not:

- over the cuts of one chain: all of it, for the bottleneck by an independent program, for the
  step time by the bound's own chain problem or, where the solver branched, by plain enumeration
  up to a number of nodes (``bound_recomputed`` says whether that was enough);
- over a space of layouts: only that no cut of the plan's own layout beats it
  (``layout_bound_checked``). That no other layout does is the search's word: a layout's bound is
  recomputed when a plan of that layout is judged.

Runners-up, the Pareto set, rejected layouts and notes are not judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.assembly import assemble_plan, unfitting_plan
from planner.cost.certificates import reachable
from planner.cost.legality import tensor_parallel_conflict
from planner.cost.pricing import Pricer
from planner.cost.stage_table import ChainProblem
from planner.errors import LayoutError, PinError, PlannerError
from planner.placement import stays_in_domain
from planner.plans import Certificate, Plan, Status, StepTerms, Violation
from planner.schedule_rules import RULES, shape_problem, stages_of_rank
from planner.schedules.bounds import root_bound
from planner.schedules.exhaust import nothing_below
from planner.schedules.general_bounds import (
    general_terms,
    grouped_least_bottleneck,
    grouped_least_value,
    none_below,
)
from planner.schedules.simulate import RECURRENT
from planner.schedules.step import evaluate_cuts
from planner.specs import Objective

__all__ = ["Verification", "check_plan", "cuts_of"]

_RELATIVE = 1e-9
"""Two runs of the same arithmetic differ only by the rounding of quanta to milliseconds."""

_NODES_PER_CUT = 20
"""Nodes of the enumeration that pricing a cut by its order stands for."""

_CUT_NODES, _LAYOUT_NODES = 20_000, 2_000
"""Nodes of the enumeration where the bound's own chain problem does not confirm a bound."""


@dataclass(frozen=True)
class Verification:
    """What the judge found.

    ``plan`` is the plan as re-priced, or None where its stages are no partition.
    """

    violations: tuple[Violation, ...]
    plan: Plan | None
    bound_recomputed: bool
    """Whether the whole of the certificate's bound was recomputed (bounds over cuts can be)."""
    layout_bound_checked: bool = False
    """Whether it was shown that no cut of the plan's own layout beats the stated bound."""

    @property
    def ok(self) -> bool:
        """No violation."""
        return not self.violations


def cuts_of(pricer: Pricer, plan: Plan) -> tuple[tuple[int, ...] | None, list[Violation]]:
    """The cut positions a plan's stages mean, and what is wrong with them.

    Every layer must be on exactly one stage, no stage empty, each stage a run of whole blocks of
    the chain in order.
    """
    model, chain = pricer.model, pricer.chain
    known = {layer.name for layer in model.layers}
    holder: dict[str, int] = {}
    stages, violations = _stage_layers(plan)

    def complain(code: str, message: str, rank: int | None = None) -> None:
        violations.append(Violation(code=code, message=message, rank=rank))

    for stage, (rank, names) in enumerate(stages):
        if not names:
            complain("EMPTY_STAGE", f"stage {stage} is empty", rank)
        for name in names:
            if name not in known:
                complain("UNKNOWN_LAYER", f"{name} is no layer of {model.name}", rank)
            elif name in holder:
                message = f"{name} is on stages {holder[name]} and {stage}"
                complain("LAYER_TWICE", message, rank)
            holder.setdefault(name, stage)
    missing = [layer.name for layer in model.layers if layer.name not in holder]
    if missing and stages:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        complain("LAYER_MISSING", f"on no stage: {', '.join(missing[:5])}{more}")
    if violations:
        return None, violations
    cuts = [0]
    for stage in range(len(stages)):
        position = cuts[-1]
        while position < len(chain.blocks) and all(
            holder[model.layers[layer].name] == stage for layer in chain.blocks[position]
        ):
            position += 1
        cuts.append(position)
    if cuts[-1] != len(chain.blocks):
        violations.append(
            Violation(
                code="NOT_CONTIGUOUS",
                message=f"block {chain.names[cuts[-1]]} is split over stages or out of order",
            )
        )
        return None, violations
    return tuple(cuts), violations


def _stage_layers(plan: Plan) -> tuple[list[tuple[int, tuple[str, ...]]], list[Violation]]:
    """(rank, layers) of every stage in model order, and what is wrong with how they stand.

    Where ranks hold several stages their ``chunks`` say which; a stage of a two-way schedule
    stands on two ranks, with the same layers.
    """
    layout = plan.layout
    if len(plan.stages) != layout.pp:
        message = f"{len(plan.stages)} stages for pp={layout.pp}"
        stages = [(stage.rank, stage.layers) for stage in plan.stages]
        return stages, [Violation(code="STAGE_COUNT", message=message)]
    if layout.vpp < 1:
        message = f"vpp is {layout.vpp}; it is at least 1"
        return [], [Violation(code="LAYOUT", message=message)]
    if not RULES[layout.schedule].several_stages:
        return [(stage.rank, stage.layers) for stage in plan.stages], []
    found: dict[int, tuple[int, tuple[str, ...]]] = {}
    for stage, held in zip(
        plan.stages, stages_of_rank(layout.schedule, layout.pp, layout.vpp), strict=True
    ):
        if len(stage.chunks) != len(held):
            message = f"rank {stage.rank} states {len(stage.chunks)} chunks, not {len(held)}"
            return [], [Violation(code="CHUNKS", message=message, rank=stage.rank)]
        for number, layers in zip(held, stage.chunks, strict=True):
            other = found.setdefault(number, (stage.rank, layers))
            if other[1] != layers:
                message = f"ranks {other[0]} and {stage.rank} differ in what stage {number} holds"
                return [], [Violation(code="CHUNKS", message=message, rank=stage.rank)]
    return [found[number] for number in sorted(found)], []


def check_plan(pricer: Pricer, plan: Plan) -> Verification:
    """Verify a plan: partition, pins, memory, every time, the objective and its bound.

    Parameters
    ----------
    pricer
        Prices of the plan's question (``planner.cost.question``).
    plan
        Any plan; an infeasible or unknown one has nothing to verify.
    """
    if plan.status in (Status.INFEASIBLE, Status.UNKNOWN):
        return Verification((), None, False)
    cuts, violations = cuts_of(pricer, plan)
    violations += _check_degrees(pricer, plan)
    if cuts is None or violations:
        return Verification(tuple(violations), None, False)
    try:
        problem = pricer.problem(plan.layout)
    except PinError as error:
        return Verification((Violation(code="PIN", message=str(error)),), None, False)
    except LayoutError as error:
        return Verification((Violation(code="LAYOUT", message=str(error)),), None, False)
    for number in range(problem.num_stages):
        if not problem.allowed(number, cuts[number], cuts[number + 1]):
            violations.append(
                Violation(
                    code="PIN",
                    message=f"pins or colocations forbid the layers of stage {number}",
                    rank=None if problem.is_grouped else number,
                )
            )
    if violations:
        return Verification(tuple(violations), None, False)
    try:
        priced = assemble_plan(pricer, plan.layout, cuts, objective=plan.objective, problem=problem)
    except PlannerError:
        stages = unfitting_plan(pricer, plan.layout, cuts)
        for stage in stages:
            if stage.memory_bytes > stage.budget_bytes:
                short = stage.memory_bytes - stage.budget_bytes
                violations.append(
                    Violation(
                        code="OUT_OF_MEMORY",
                        message=f"rank {stage.rank} is {short} bytes over its budget of "
                        f"{stage.budget_bytes}",
                        rank=stage.rank,
                    )
                )
        return Verification(tuple(violations), plan.model_copy(update={"stages": stages}), False)
    violations += _compare(pricer, plan, priced)
    bound_violations, recomputed, own_layout = _check_bound(problem, pricer, plan, priced, cuts)
    violations += bound_violations
    return Verification(tuple(violations), priced, recomputed, own_layout)


def _check_degrees(pricer: Pricer, plan: Plan) -> list[Violation]:
    """Batch, GPUs and degrees of the layout against what was asked."""
    layout, training = plan.layout, pricer.training
    found = []

    def complain(code: str, message: str) -> None:
        found.append(Violation(code=code, message=message))

    degrees = ("dp", "pp", "tp", "vpp", "microbatch_size", "num_microbatches")
    for name in degrees:
        if getattr(layout, name) < 1:
            complain("LAYOUT", f"{name} is {getattr(layout, name)}; it is at least 1")
    for name in ("cp", "ep"):
        if getattr(layout, name) != 1:
            complain("LAYOUT", f"{name} is {getattr(layout, name)}; only 1 can be priced")
    if found:
        return found
    wrong = shape_problem(layout.schedule, layout.pp, layout.num_microbatches, layout.vpp)
    if wrong is not None:
        complain("LAYOUT", f"{wrong[0]}; {wrong[1]}")
        return found
    batch = layout.dp * layout.num_microbatches * layout.microbatch_size
    if batch != training.global_batch_size:
        complain("BATCH", f"dp x M x m = {batch}, the global batch is {training.global_batch_size}")
    if layout.schedule not in training.schedules:
        complain("SCHEDULE", f"{layout.schedule.value} is not among the schedules asked for")
    conflict = tensor_parallel_conflict(pricer.model, layout.tp)
    if conflict is not None:
        complain("LAYOUT", conflict)
    if pricer.fixed_link is not None:
        if plan.objective not in (Objective.BOTTLENECK, Objective.STEP_TIME):
            complain(
                "OBJECTIVE",
                f"a partition minimises bottleneck or step-time, not {plan.objective.value}",
            )
        return found
    cluster = pricer.cluster
    if layout.num_gpus > cluster.num_gpus:
        complain(
            "GPUS", f"the layout needs {layout.num_gpus} GPUs, the cluster has {cluster.num_gpus}"
        )
    inside = stays_in_domain(cluster, layout.tp, layout.num_gpus)
    if not inside and not training.allow_cross_domain:
        complain(
            "LAYOUT", f"tp={layout.tp} leaves the nvlink domain of {cluster.nvlink_domain} GPUs"
        )
    for name in ("dp", "pp", "tp", "vpp", "microbatch_size"):
        pin = getattr(training.pins, name)
        if pin is not None and pin != getattr(layout, name):
            complain("PIN", f"{name} is {getattr(layout, name)}, but pinned to {pin}")
    return found


_PLAN_FIGURES = (
    "bottleneck_ms", "step_time_ms", "bubble_fraction", "mfu", "tokens_per_s",
    "tokens_per_dollar", "peak_memory_bytes",
)  # fmt: skip
_STAGE_TIMES = (
    "forward_ms", "backward_ms", "input_gradient_ms", "weight_gradient_ms", "recompute_ms",
    "communication_ms", "tensor_parallel_ms", "exposed_reduction_ms", "hidden_reduction_ms",
    "optimizer_ms",
)  # fmt: skip
_PLAN_FACTS = (
    "sends", "num_gpus", "idle_gpus", "communication", "origins", "time_model", "rank_order",
)  # fmt: skip
_PLAN_QUESTION = ("global_batch_size", "sequence_length", "precision", "optimizer")
"""What was asked, repeated in the answer; None says nothing."""
_STAGE_FACTS = (
    "rank", "in_flight", "memory_bytes", "memory", "memory_upper_bytes", "budget_bytes",
    "recompute", "recomputed_layers", "verdict", "origin",
)  # fmt: skip


def _differs(said: float | None, found: float | None) -> bool:
    """Whether a stated figure is not the one found; a figure of None states nothing."""
    if said is None:
        return False
    return found is None or not math.isclose(said, found, rel_tol=_RELATIVE, abs_tol=1e-12)


def _compare(pricer: Pricer, plan: Plan, priced: Plan) -> list[Violation]:
    """Every figure the plan states against the re-priced one (what it omits is not judged)."""
    found: list[Violation] = []

    def complain(what: str, said: object, really: object, rank: int | None = None) -> None:
        found.append(
            Violation(code="PRICE", message=f"{what} is {really}, the plan says {said}", rank=rank)
        )

    for name in _PLAN_FIGURES:
        if name in plan.model_fields_set and _differs(getattr(plan, name), getattr(priced, name)):
            complain(name, getattr(plan, name), getattr(priced, name))
    for name in _PLAN_FACTS:
        if name in plan.model_fields_set and getattr(plan, name) != getattr(priced, name):
            complain(name, getattr(plan, name), getattr(priced, name))
    for name in (*_PLAN_QUESTION, *_names_stated(pricer, plan)):
        if getattr(plan, name) not in (None, getattr(priced, name)):
            complain(name, getattr(plan, name), getattr(priced, name))
    said_mode, real_mode = plan.layout.recompute, priced.layout.recompute
    if "recompute" in plan.layout.model_fields_set and said_mode != real_mode:
        complain("layout.recompute", said_mode, real_mode)
    if plan.step_terms is not None and priced.step_terms is not None:
        given = plan.step_terms.model_fields_set
        for name in (each for each in StepTerms.model_fields if each in given):
            said_term, real_term = getattr(plan.step_terms, name), getattr(priced.step_terms, name)
            if _differs(said_term, real_term):
                complain(name, said_term, real_term)
    for said, really in zip(plan.stages, priced.stages, strict=True):
        stated = said.model_fields_set
        for name in _STAGE_TIMES:
            if name in stated and _differs(getattr(said, name), getattr(really, name)):
                complain(name, getattr(said, name), getattr(really, name), said.rank)
        for name in _STAGE_FACTS:
            if name in stated and getattr(said, name) != getattr(really, name):
                complain(name, getattr(said, name), getattr(really, name), said.rank)
        # One chunk (vpp=1) is the stage's layers, which were judged in whatever order they stand.
        alone = ((said.layers,),) if len(really.chunks) == 1 else ()
        if "chunks" in stated and said.chunks not in (*alone, really.chunks):
            complain("chunks", said.chunks, really.chunks, said.rank)
    return found


def _names_stated(pricer: Pricer, plan: Plan) -> list[str]:
    """Which of model and cluster are claims.

    Where ``inputs`` does not say what was priced, they are references that were followed.
    """
    names = []
    if plan.model and plan.inputs.keys() & {"model", "model_digest"}:
        names.append("model")
    if pricer.fixed_link is not None or plan.inputs.keys() & {"cluster", "cluster_spec"}:
        names.append("cluster")
    return names


def _scope(pricer: Pricer, certificate: Certificate | None) -> str:
    """What a bound covers: the space of layouts of a plan's question, or which cuts of the chain.

    Where only the cuts of a given layout were searched, the kind of the certificate's bound says
    so; such a bound claims less than one over the space, and is recomputed.
    """
    if pricer.fixed_link is None and (certificate is None or certificate.bound_kind == "space"):
        return "space"
    if pricer.chain.covers_all_cuts:
        return "cuts"
    return "file_order_cuts" if pricer.chain.linearised else "block_cuts"


def _check_bound(
    problem: ChainProblem, pricer: Pricer, plan: Plan, priced: Plan, cuts: Sequence[int]
) -> tuple[list[Violation], bool, bool]:
    """Whether the stated bound holds for the cuts of this layout.

    A bound over a whole space holds for this layout's cuts among others.
    """
    certificate = plan.certificate
    found = []
    covers = _scope(pricer, certificate)
    bounded = plan.bound_ms is not None
    if (bounded or plan.status is Status.OPTIMAL) and plan.bound_covers != covers:
        message = f"a bound of this question covers {covers}, the plan says {plan.bound_covers}"
        found.append(Violation(code="BOUND_COVERS", message=message))
    if plan.status is Status.OPTIMAL and (certificate is None or not bounded):
        message = "optimal without a certificate"
        found.append(Violation(code="NO_CERTIFICATE", message=message))
    if certificate is None:
        return found, False, False
    evaluation = evaluate_cuts(problem, cuts)
    if evaluation is None:  # pragma: no cover - the plan was priced just before
        raise PlannerError("the cuts of a priced plan do not fit")
    value = step = evaluation.value
    unit = 1
    if plan.objective is Objective.BOTTLENECK:
        value = evaluation.bottleneck
    elif plan.objective is Objective.TOKENS_PER_DOLLAR:
        unit = plan.layout.num_gpus
        value = step * unit
    found += _check_certificate(pricer, plan, priced, certificate, value, unit, cuts)
    if not bounded:
        return found, False, False
    bound = certificate.bound_quanta
    if bound > value:
        message = f"the bound of {plan.bound_ms} ms exceeds the value"
        found.append(Violation(code="BOUND", message=message))
    if plan.status is Status.OPTIMAL and bound < value:
        found.append(Violation(code="BOUND", message="optimal, but the bound is below the value"))
    over_cuts = covers != "space"
    if any(violation.code == "BOUND" for violation in found):
        return found, False, False
    if plan.objective is Objective.BOTTLENECK:
        holds: bool | None = _bottleneck_bound_holds(problem, bound)
    else:
        holds = _step_bound_holds(
            problem, -(-bound // unit), step, _CUT_NODES if over_cuts else _LAYOUT_NODES
        )
    if holds is False:
        message = f"some cut of this layout beats the stated bound of {plan.bound_ms} ms"
        found.append(Violation(code="BOUND", message=message))
    elif holds is None and problem.is_grouped:
        message = (
            f"no proof of {plan.bound_ms} ms is known where ranks hold several stages: their loads "
            "alone bound it lower"
        )
        found.append(Violation(code="BOUND", message=message))
    elif holds is None and over_cuts and certificate.bound_kind in ("interval_dp", "totals"):
        message = f"the chain problem named by the certificate does not give {plan.bound_ms} ms"
        found.append(Violation(code="BOUND", message=message))
    decided = holds is not None
    return found, decided and over_cuts, decided


def _bottleneck_bound_holds(problem: ChainProblem, bound: int) -> bool | None:
    """Whether no cut has a bottleneck below ``bound``; None where that was not decided."""
    if problem.is_grouped:
        return True if grouped_least_bottleneck(problem) >= bound else None
    return not reachable(problem, bound - 1)


def _step_bound_holds(problem: ChainProblem, bound: int, value: int, nodes: int) -> bool | None:
    """Whether no cut has a step value below ``bound``; None where that was not decided."""
    if problem.is_grouped:
        return True if grouped_least_value(problem) >= bound else None
    if problem.schedule not in RECURRENT:
        if general_terms(problem) is None:
            return True if grouped_least_value(problem) >= bound else None
        return none_below(problem, bound, nodes // _NODES_PER_CUT)
    own_bound, _ = root_bound(problem, upper_bound=value)
    if own_bound is not None and own_bound >= bound:
        return True
    return nothing_below(problem, bound, nodes)


def _check_certificate(
    pricer: Pricer,
    plan: Plan,
    priced: Plan,
    certificate: Certificate,
    value: int,
    unit: int,
    cuts: Sequence[int],
) -> list[Violation]:
    """Whether the certificate is of this plan, and plan and certificate state the same bound."""
    found = []

    def complain(message: str) -> None:
        found.append(Violation(code="CERTIFICATE", message=message))

    if tuple(certificate.cuts) != tuple(cuts):
        complain("the certificate's cuts are not the plan's")
    if certificate.recompute != tuple(stage.recompute for stage in priced.stages):
        complain("the certificate's recompute modes are not the plan's")
    if certificate.bound_kind == "space" and pricer.fixed_link is not None:
        complain("a partition has no space of layouts to bound")
    if certificate.quantum_ms != str(pricer.quantum):
        complain(f"the time unit is {pricer.quantum} ms, not {certificate.quantum_ms} ms")
    if certificate.value_quanta != value:
        complain(f"the value is {value} quanta, the certificate says {certificate.value_quanta}")
    if _differs(plan.bound_ms, pricer.quantum.ms(certificate.bound_quanta) / unit):
        complain(f"the plan's bound of {plan.bound_ms} ms is not the certificate's")
    gap = (value - certificate.bound_quanta) / value if value else 0.0
    if _differs(plan.gap, gap):
        complain(f"the gap is {gap}, the plan says {plan.gap}")
    return found
