"""The judge: re-prices a plan from the specs and recomputes its bound, without any solver.

Every solver, executor, writer and service test ends here. Nothing of a plan is believed but its
layout and which layers each stage holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.assembly import assemble_plan, unfitting_plan
from planner.cost.certificates import reachable
from planner.cost.pricing import Pricer
from planner.cost.stage_table import ChainProblem
from planner.errors import PinError, PlannerError
from planner.plans import Plan, Status, Violation
from planner.schedules.bounds import root_bound
from planner.specs import Objective

__all__ = ["Verification", "check_plan", "cuts_of"]

_RELATIVE = 1e-9
"""Two runs of the same arithmetic differ only by the rounding of quanta to milliseconds."""

_CUT_SCOPES = ("cuts", "block_cuts", "file_order_cuts")
"""Bounds over the cuts of one chain; they are recomputed. Others bound a whole space."""


@dataclass(frozen=True)
class Verification:
    """What the judge found.

    ``plan`` is the plan as re-priced, or None where its stages are no partition.
    """

    violations: tuple[Violation, ...]
    plan: Plan | None
    bound_recomputed: bool
    """Whether the certificate's bound was recomputed (only bounds over cuts can be, cheaply)."""

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
    violations: list[Violation] = []
    holder: dict[str, int] = {}

    def complain(code: str, message: str, rank: int | None = None) -> None:
        violations.append(Violation(code=code, message=message, rank=rank))

    for stage in plan.stages:
        if not stage.layers:
            complain("EMPTY_STAGE", f"stage {stage.rank} is empty", stage.rank)
        for name in stage.layers:
            if name not in known:
                complain("UNKNOWN_LAYER", f"{name} is no layer of {model.name}", stage.rank)
            elif name in holder:
                message = f"{name} is on stages {holder[name]} and {stage.rank}"
                complain("LAYER_TWICE", message, stage.rank)
            holder.setdefault(name, stage.rank)
    missing = [layer.name for layer in model.layers if layer.name not in holder]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        complain("LAYER_MISSING", f"on no stage: {', '.join(missing[:5])}{more}")
    if len(plan.stages) != plan.layout.pp:
        complain("STAGE_COUNT", f"{len(plan.stages)} stages for pp={plan.layout.pp}")
    if violations:
        return None, violations
    cuts = [0]
    for rank in range(plan.layout.pp):
        position = cuts[-1]
        while position < len(chain.blocks) and all(
            holder[model.layers[layer].name] == rank for layer in chain.blocks[position]
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
    for rank in range(plan.layout.pp):
        if not problem.allowed(rank, cuts[rank], cuts[rank + 1]):
            violations.append(
                Violation(
                    code="PIN",
                    message=f"pins or colocations forbid the layers of stage {rank}",
                    rank=rank,
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
    violations += _compare(plan, priced)
    bound_violations, recomputed = _check_bound(problem, pricer, plan, priced, cuts)
    violations += bound_violations
    return Verification(tuple(violations), priced, recomputed)


def _check_degrees(pricer: Pricer, plan: Plan) -> list[Violation]:
    layout = plan.layout
    found = []
    batch = layout.dp * layout.num_microbatches * layout.microbatch_size
    if batch != pricer.training.global_batch_size:
        found.append(
            Violation(
                code="BATCH",
                message=f"dp x M x m = {batch}, the global batch is "
                f"{pricer.training.global_batch_size}",
            )
        )
    if pricer.fixed_link is None and layout.num_gpus > pricer.cluster.num_gpus:
        found.append(
            Violation(
                code="GPUS",
                message=f"the layout needs {layout.num_gpus} GPUs, the cluster has "
                f"{pricer.cluster.num_gpus}",
            )
        )
    return found


def _differs(said: float | None, found: float | None) -> bool:
    if said is None or found is None:
        return False
    return not math.isclose(said, found, rel_tol=_RELATIVE, abs_tol=1e-12)


def _compare(plan: Plan, priced: Plan) -> list[Violation]:
    """Every figure the plan states against the re-priced one (what it omits is not judged)."""
    found: list[Violation] = []

    def complain(what: str, said: object, really: object, rank: int | None = None) -> None:
        found.append(
            Violation(code="PRICE", message=f"{what} is {really}, the plan says {said}", rank=rank)
        )

    for name in ("bottleneck_ms", "step_time_ms", "bubble_fraction", "mfu", "tokens_per_s"):
        if _differs(getattr(plan, name), getattr(priced, name)):
            complain(name, getattr(plan, name), getattr(priced, name))
    for said, really in zip(plan.stages, priced.stages, strict=True):
        if "memory_bytes" not in said.model_fields_set:
            continue
        for name in (
            "forward_ms", "backward_ms", "input_gradient_ms", "weight_gradient_ms",
            "communication_ms",
        ):  # fmt: skip
            if _differs(getattr(said, name), getattr(really, name)):
                complain(name, getattr(said, name), getattr(really, name), said.rank)
        for name in (
            "in_flight",
            "memory_bytes",
            "memory",
            "recompute",
            "recomputed_layers",
            "verdict",
        ):
            if getattr(said, name) != getattr(really, name):
                complain(name, getattr(said, name), getattr(really, name), said.rank)
        if sum(said.memory.values()) != said.memory_bytes:
            complain(
                "the sum of the memory terms",
                said.memory_bytes,
                sum(said.memory.values()),
                said.rank,
            )
    return found


def _check_bound(
    problem: ChainProblem, pricer: Pricer, plan: Plan, priced: Plan, cuts: Sequence[int]
) -> tuple[list[Violation], bool]:
    """Whether the stated bound holds for the cuts of this layout.

    A bound over a whole space cannot exceed the bound over this layout's cuts, so both are
    checked against the bound recomputed here.
    """
    certificate = plan.certificate
    if plan.bound_ms is None or certificate is None:
        if plan.status is Status.OPTIMAL:
            return [
                Violation(code="NO_CERTIFICATE", message="optimal without a certificate")
            ], False
        return [], False
    found: list[Violation] = []
    if tuple(certificate.cuts) != tuple(cuts):
        found.append(
            Violation(code="CERTIFICATE", message="the certificate's cuts are not the plan's")
        )
    value_ms = (
        priced.bottleneck_ms if plan.objective is Objective.BOTTLENECK else priced.step_time_ms
    )
    assert value_ms is not None
    value = pricer.quantum.quanta(value_ms)
    bound = certificate.bound_quanta
    if bound > value:
        found.append(
            Violation(
                code="BOUND",
                message=f"the bound of {plan.bound_ms} ms exceeds the value of {value_ms} ms",
            )
        )
    if plan.status is Status.OPTIMAL and plan.bound_covers in _CUT_SCOPES and bound < value:
        found.append(Violation(code="BOUND", message="optimal, but the bound is below the value"))
    if plan.bound_covers not in _CUT_SCOPES:
        return found, False
    if plan.objective is Objective.BOTTLENECK:
        if reachable(problem, bound - 1):
            found.append(
                Violation(
                    code="BOUND",
                    message=f"some cut beats the stated bound of {plan.bound_ms} ms",
                )
            )
        return found, True
    own_bound, _ = root_bound(problem)
    if own_bound is not None and certificate.bound_kind == "interval_dp":
        if bound > own_bound:
            found.append(
                Violation(
                    code="BOUND",
                    message=f"the stated bound of {plan.bound_ms} ms exceeds the recomputed one of "
                    f"{pricer.quantum.ms(own_bound)} ms",
                )
            )
        return found, True
    return found, False
