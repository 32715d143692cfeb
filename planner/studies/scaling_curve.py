"""``scaling_curve``: how fast a job trains on each of many allocations, and where to put it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from planner.curves import (
    Allocation,
    CurvePoint,
    PointStatus,
    ScalingCurve,
    SizeRange,
    Transition,
)
from planner.deadlines import late, within
from planner.errors import InputError, LayoutError
from planner.graph import contract
from planner.options import deadline_of, schedules_of, search_limits, spec_of
from planner.plans import Plan, Termination
from planner.questions import load_model
from planner.revisions import calibration_revision
from planner.search.curve_search import SizeResult
from planner.specs import Cluster, Model, Pins, Training
from planner.studies.curve_allocations import allocation_cluster, allocations_of, clusters_of
from planner.studies.curve_envelope import (
    REFUTED,
    combined_revision,
    envelope_of,
    minimum_of,
    recommended_sizes,
)
from planner.studies.curve_points import PointQuestion, missing_point, point_of
from planner.studies.curve_solving import TypeSolver
from planner.studies.curve_transitions import runs_elsewhere, transition_to
from planner.version import planner_version

__all__ = ["scaling_curve"]

_PINS = ("dp", "pp", "tp", "vpp", "microbatch_size")


def scaling_curve(
    model: Model | str,
    cluster: Cluster | str | Mapping[str, Cluster | str],
    *,
    allocations: Sequence[Allocation | int] | SizeRange,
    global_batch_size: int | tuple[int, int],
    sequence_length: int | None = None,
    current_plan: Plan | None = None,
    max_restart_s: float | None = None,
    valid_until: str | None = None,
    time_limit_s: float | None = None,
    work_limit: int | None = None,
    on_point: Callable[[CurvePoint], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> ScalingCurve:
    """How fast a job trains on each of many allocations, and how to place it.

    One search serves all sizes. Points answer for layouts that use all GPUs of an allocation;
    the envelope shows where fewer do better. A point does not depend on which others are asked.

    Parameters
    ----------
    model, cluster
        Specs, or what ``load_model`` and ``load_cluster`` take; several GPU types as a mapping
        from type to cluster.
    allocations
        GPU counts (whole nodes; fewer than a node are allowed), allocations, or a range.
    global_batch_size
        Samples a step. Of an inclusive range, each size gets the batch with the most samples/s
        among the largest ones that its layouts can divide.
    sequence_length
        Tokens a sample; the model's own where it is not given.
    current_plan
        What the job runs now: points then say what it takes to get there.
    max_restart_s
        Seconds that a change may take; points that need longer say so.
    valid_until
        RFC 3339; repeated in the answer.
    time_limit_s, stop
        As of :func:`planner.plan`; points that were not reached have status ``deadline``.
    work_limit
        Branch-and-bound nodes a layout spent on points that the quick search leaves open; none by
        default.
    on_point
        Told of each point as it is found, smaller ones first.
    options
        Further fields of :class:`planner.specs.Training`, and pins (``dp``, ``pp``, ``tp``,
        ``vpp``, ``microbatch_size``).

    Raises
    ------
    InputError
        Input that cannot be used.

    Examples
    --------
    >>> curve = scaling_curve("llama3-8b", "dgx-h100:4", allocations=[8, 16, 32],
    ...                       global_batch_size=64, sequence_length=4096)
    >>> [(point.num_gpus, point.layout.short()) for point in curve.points]
    [(8, 'dp4 x pp1 x tp2, m=2, M=8, 1f1b'), (16, 'dp16 x pp1 x tp1, m=1, M=4, 1f1b'), \
(32, 'dp16 x pp1 x tp2, m=4, M=1, 1f1b')]
    """
    model_spec = load_model(model) if isinstance(model, str) else model
    clusters = clusters_of(cluster)
    asked = allocations_of(allocations, clusters)
    batches = _batches(global_batch_size)
    training = _training(model_spec, batches[1], sequence_length, options)
    limits = None if work_limit is None else search_limits(work_limit)
    _check_time(max_restart_s)
    run = _Curve(model_spec, clusters, training, batches, current_plan, max_restart_s, on_point)
    with within(deadline_of(time_limit_s, stop)):
        for kind in clusters:
            run.solve_type(kind, [a for a in asked if a.gpu_type == kind], limits)
        ended = late()
    points = tuple(run.points[allocation] for allocation in asked)
    envelope, spare = envelope_of(points, run.fewer)
    minimum, proven = minimum_of(points, run.fewer, run.refuted)
    reason = "proven" if all(_settled(point) for point in points) else "work_limit"
    if ended and any(
        point.status is PointStatus.DEADLINE or not _settled(point) for point in points
    ):
        reason = ended
    inputs = {
        "question": "scaling_curve",
        "model": model if isinstance(model, str) else model_spec.name,
        "model_digest": run.digest,
        "training": training.model_dump_json(),
        "planner_version": planner_version(),
    }
    for kind, each in clusters.items():
        inputs["cluster_spec" if kind is None else f"cluster_spec:{kind}"] = each.model_dump_json()
    return ScalingCurve(
        points=points,
        spare=spare,
        envelope=envelope,
        recommended_sizes=recommended_sizes(points),
        minimum_gpus=minimum,
        minimum_proven=proven,
        model=model_spec.name,
        model_revision=run.digest,
        calibration_revision=combined_revision(clusters),
        planner_version=planner_version(),
        valid_until=valid_until,
        notes=tuple(run.notes),
        termination=Termination(
            reason=reason, limit=time_limit_s if reason == "time_limit" else None
        ),
        inputs=inputs,
    )


def _settled(point: CurvePoint) -> bool:
    return (
        point.proven
        if point.status is PointStatus.FEASIBLE
        else (point.status is not PointStatus.DEADLINE)
    )


class _Curve:
    """What is found on the way."""

    def __init__(
        self,
        model: Model,
        clusters: Mapping[str | None, Cluster],
        training: Training,
        batches: tuple[int, int],
        current: Plan | None,
        max_restart_s: float | None,
        on_point: Callable[[CurvePoint], None] | None,
    ) -> None:
        self.model, self.clusters, self.training, self.batches = model, clusters, training, batches
        self.current, self.max_restart_s, self.on_point = current, max_restart_s, on_point
        self.chain = contract(model)
        self.digest = model.digest()
        self.text = training.model_dump_json(exclude={"global_batch_size"})
        self.points: dict[Allocation, CurvePoint] = {}
        self.fewer: list[CurvePoint] = []
        self.refuted: set[Allocation] = set()
        self.notes: list[str] = []
        self._elsewhere = {
            kind: current is not None and runs_elsewhere(current, each)
            for kind, each in clusters.items()
        }
        if batches[0] < batches[1]:
            self.notes.append(
                "of the range of global batch sizes each point has the one with the most samples/s "
                "among the largest that its layouts divide (micro-batches of 1 to 8 samples and "
                "powers of two); bounds and proofs are for that batch"
            )

    def solve_type(self, kind: str | None, asked: Sequence[Allocation], limits: Any) -> None:
        """Solve the allocations of a GPU type, smaller ones first."""
        if not asked:
            return
        whole = self.clusters[kind]
        solver = TypeSolver(self.model, self.chain, whole, self.training, self.batches, limits)
        wires = calibration_revision(whole)
        order = sorted(dict.fromkeys(asked), key=lambda a: (a.num_gpus, a.nodes))
        shapes = list(dict.fromkeys((a.nodes, a.gpus_per_node) for a in order))
        of_shape: dict[tuple[int, int], list[Allocation]] = {shape: [] for shape in shapes}
        for allocation in order:
            of_shape[allocation.nodes, allocation.gpus_per_node].append(allocation)
        clusters = [allocation_cluster(whole, of_shape[shape][0]) for shape in shapes]
        found: dict[int, tuple[SizeResult, int]] = {}
        told = 0
        last: CurvePoint | None = None

        def on_size(index: int, result: SizeResult, batch: int) -> None:
            """Tell of all sizes up to the first that is not known yet: smaller ones come first."""
            nonlocal told, last
            found[index] = (result, batch)
            while told in found:
                point = self._tell(
                    solver, wires, of_shape[shapes[told]], clusters[told], *found[told], last
                )
                last = point if point.samples_per_s is not None else last
                told += 1

        solver.solve(clusters, on_size)
        # Last, so that no point waits for it; larger ones first, whose refutation is a smaller
        # one's.
        for index in range(len(shapes) - 1, -1, -1):
            same = of_shape[shapes[index]]
            if self.points[same[0]].status in REFUTED:
                self._look_for_fewer(solver, wires, same, clusters[index], found[index][1])

    def _tell(
        self,
        solver: TypeSolver,
        wires: str,
        allocations: Sequence[Allocation],
        cluster: Cluster,
        result: SizeResult,
        batch: int,
        last: CurvePoint | None,
    ) -> CurvePoint:
        """Make the points of equal allocations, and tell the caller."""
        for allocation in allocations:
            point = self._point(solver, wires, allocation, cluster, result, batch)
            if point.samples_per_s is not None:
                point = _with_marginal(point, last)
            self.points[allocation] = point
            if self.on_point is not None:
                self.on_point(point)
        return point

    def _look_for_fewer(
        self,
        solver: TypeSolver,
        wires: str,
        allocations: Sequence[Allocation],
        cluster: Cluster,
        batch: int,
    ) -> None:
        result = solver.fewer(cluster, batch)
        if result is None:
            return
        if result.layout is None:
            if result.interrupted is None and result.refusal is None:
                self.refuted.update(allocations)
            return
        point = self._point(solver, wires, allocations[0], cluster, result, batch)
        self.fewer.append(point.model_copy(update={"proven": False, "bound_ms": None, "gap": None}))

    def _point(
        self,
        solver: TypeSolver,
        wires: str,
        allocation: Allocation,
        cluster: Cluster,
        result: SizeResult,
        batch: int,
    ) -> CurvePoint:
        if result.layout is None:
            return missing_point(allocation, result, batch, cluster)
        pricer = solver.prices(cluster).pricer
        training = self.training.model_copy(update={"global_batch_size": batch})
        change: Transition | None = None
        if self.current is not None:
            change = transition_to(
                self.current, result.layout, result.cuts, pricer, cluster, self.max_restart_s,
                elsewhere=self._elsewhere[allocation.gpu_type],
            )  # fmt: skip
        question = PointQuestion(pricer, self.digest, wires, self.text)
        return point_of(question, allocation, cluster, training, result, change)


def _with_marginal(point: CurvePoint, last: CurvePoint | None) -> CurvePoint:
    """What each GPU more than the next smaller feasible point adds."""
    if last is None or point.num_gpus == last.num_gpus:
        return point
    more = (point.samples_per_s or 0.0) - (last.samples_per_s or 0.0)
    each = more / (point.num_gpus - last.num_gpus)
    return point.model_copy(update={"marginal_samples_per_s_per_gpu": each})


def _batches(asked: int | tuple[int, int]) -> tuple[int, int]:
    low, high = (asked, asked) if isinstance(asked, int) else (None, None)
    if isinstance(asked, Sequence) and len(asked) == 2:
        low, high = asked
    if not all(isinstance(b, int) and not isinstance(b, bool) for b in (low, high)):
        raise InputError(
            "is no global batch size", value=repr(asked), expected="samples a step, or (min, max)"
        )
    assert low is not None
    assert high is not None
    if low > high or low < 1:
        raise InputError(
            "is no range of global batch sizes", value=f"{low}..{high}", expected="1 <= min <= max"
        )
    return low, high


def _check_time(max_restart_s: float | None) -> None:
    if max_restart_s is not None and not max_restart_s >= 0:
        raise InputError("is no time to restart in", value=max_restart_s, expected="0 s or more")


def _training(
    model: Model, batch: int, sequence_length: int | None, options: dict[str, Any]
) -> Training:
    length = sequence_length or model.sequence_length
    if length is None:
        raise InputError("the sequence length is not known", fix="give sequence_length")
    if options.pop("allow_fewer", False):
        raise InputError(
            "a curve's points use all their GPUs", fix="read the envelope, which may use fewer"
        )
    if "schedule" in options:
        options["schedules"] = options.pop("schedule")
    if "schedules" in options:
        options["schedules"] = schedules_of(options["schedules"])
    pins = {name: options.pop(name) for name in _PINS if name in options}
    if pins:
        if "pins" in options:
            raise InputError("pins were given twice", fix="give them by name or as pins")
        options["pins"] = spec_of(Pins, **pins)
    training = spec_of(Training, global_batch_size=batch, sequence_length=length, **options)
    if training.pins.tp:
        from planner.cost.legality import tensor_parallel_conflict

        conflict = tensor_parallel_conflict(model, training.pins.tp)
        if conflict:
            raise LayoutError(conflict)
    return training
