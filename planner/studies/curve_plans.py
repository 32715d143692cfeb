"""A point of a curve as a whole plan, for launchers, reports and the judge."""

from __future__ import annotations

from decimal import Decimal

from planner.assembly import assemble_plan
from planner.cost.pricing import Pricer
from planner.cost.question import plan_pricer
from planner.curves import CurvePoint, ScalingCurve
from planner.errors import InputError, PlanFileError
from planner.options import stored_spec
from planner.plans import Certificate, Plan, Status, Termination
from planner.questions import load_model
from planner.specs import Cluster, Model, Training
from planner.studies.curve_allocations import allocation_cluster

__all__ = ["point_plan"]


def point_plan(curve: ScalingCurve, point: CurvePoint, *, model: Model | str | None = None) -> Plan:
    """The plan of a point, with every figure that :func:`planner.plan` gives.

    Parameters
    ----------
    curve
        The curve that the point (one of ``points`` or ``spare``) is from.
    model
        The model, where the curve's ``inputs`` name none that can be loaded.

    Raises
    ------
    InputError
        The point has no layout, or the model is not the one of the curve.
    """
    if point.layout is None:
        raise InputError(
            "the point has no plan", value=point.status.value, expected="a feasible point"
        )
    inputs = curve.inputs
    source = model or inputs.get("model") or curve.model
    spec = load_model(source) if isinstance(source, str) else source
    if spec.digest() != curve.model_revision:
        raise InputError(
            f"the model is not the curve's (hash {spec.digest()}, was {curve.model_revision})",
            fix="give the model that the curve was asked for",
        )
    kind = point.allocation.gpu_type
    key = "cluster_spec" if kind is None else f"cluster_spec:{kind}"
    if key not in inputs:
        raise PlanFileError(f"inputs.{key} is missing", fix="ask for the curve again")
    whole = stored_spec(Cluster, inputs, key)
    training = stored_spec(Training, inputs, "training").model_copy(
        update={"global_batch_size": point.global_batch_size}
    )
    return plan_of_point(
        plan_pricer(spec, allocation_cluster(whole, point.allocation), training), point, inputs
    )


def plan_of_point(pricer: Pricer, point: CurvePoint, inputs: dict[str, str]) -> Plan:
    """The plan of a point at given prices."""
    layout = point.layout
    assert layout is not None
    plan = assemble_plan(pricer, layout, point.cuts)
    quantum = Decimal(str(pricer.quantum))
    value = int(Decimal(repr(plan.step_time_ms)) / quantum + Decimal("0.5"))
    proven = point.proven and point.gpus_used == point.num_gpus
    bound = value if proven else None
    if bound is None and point.bound_ms is not None:
        bound = min(value, int(Decimal(repr(point.bound_ms)) / quantum))
    said: dict[str, object] = {
        "inputs": {
            "question": "plan",
            "model": inputs.get("model", pricer.model.name),
            "model_digest": inputs.get("model_digest", ""),
            "cluster": pricer.cluster.name,
            "cluster_spec": pricer.cluster.model_dump_json(),
            "training": pricer.training.model_dump_json(),
            "planner_version": inputs.get("planner_version", ""),
        },
        "status": Status.OPTIMAL if proven else Status.FEASIBLE,
        "termination": Termination(reason="proven" if proven else "work_limit"),
    }
    if bound is not None:
        said |= {
            "bound_ms": pricer.quantum.ms(bound),
            "gap": (value - bound) / value if value else 0.0,
            "bound_covers": "space",
            "certificate": Certificate(
                bound_kind="space",
                cuts=point.cuts,
                recompute=tuple(stage.recompute for stage in plan.stages),
                value_quanta=value,
                bound_quanta=bound,
                quantum_ms=str(pricer.quantum),
            ),
        }
    return plan.model_copy(update=said)
