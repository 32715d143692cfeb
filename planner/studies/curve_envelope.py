"""What the points of a curve say together: the envelope, sizes worth offering, the smallest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set

from planner.curves import Allocation, CurvePoint, EnvelopePoint, PointStatus
from planner.revisions import calibration_revision
from planner.specs import Cluster

__all__ = ["REFUTED", "combined_revision", "envelope_of", "minimum_of", "recommended_sizes"]

_REAL_GAIN = 0.10
"""Share of proportional scaling that a larger size has to add to be worth a name."""

REFUTED = (
    PointStatus.INFEASIBLE_MEMORY,
    PointStatus.INFEASIBLE_DIVISIBILITY,
    PointStatus.INFEASIBLE_BATCH,
)
"""No layout uses all GPUs; some may use fewer."""


def envelope_of(
    points: Sequence[CurvePoint], fewer: Sequence[CurvePoint]
) -> tuple[tuple[EnvelopePoint, ...], tuple[CurvePoint, ...]]:
    """By type and size, the best samples/s with at most that many GPUs, and what it needs of
    ``fewer``.

    Parameters
    ----------
    points
        The points asked for.
    fewer
        Plans with idle GPUs for sizes that no layout uses whole.
    """
    found: list[EnvelopePoint] = []
    spare: dict[str, CurvePoint] = {}
    kinds = dict.fromkeys(point.allocation.gpu_type for point in points)
    for kind in kinds:
        mine = [p for p in points if p.allocation.gpu_type == kind]
        extra = [p for p in fewer if p.allocation.gpu_type == kind]
        able = [p for p in (*mine, *extra) if p.samples_per_s is not None]
        for size in sorted({point.num_gpus for point in mine}):
            # Of equal speeds the one with fewer GPUs.
            best = max(
                (p for p in able if p.num_gpus <= size),
                key=lambda p: (p.samples_per_s or 0.0, -p.gpus_used, p.plan_id),
                default=None,
            )
            if best is None:
                continue
            found.append(
                EnvelopePoint(
                    num_gpus=size,
                    gpus_used=best.gpus_used,
                    samples_per_s=best.samples_per_s or 0.0,
                    plan_id=best.plan_id,
                    gpu_type=kind,
                )
            )
            if best in extra:
                spare[best.plan_id] = best
    return tuple(found), tuple(spare.values())


def recommended_sizes(points: Sequence[CurvePoint]) -> tuple[int, ...]:
    """Sizes worth offering, ascending.

    The smallest feasible size; then each size that is faster than the last one taken by at least
    a tenth of what proportional scaling would add. Sizes that no layout uses whole are not among
    them. With several GPU types, the union.
    """
    chosen: set[int] = set()
    for kind in dict.fromkeys(point.allocation.gpu_type for point in points):
        able = sorted(
            (p.num_gpus, p.samples_per_s)
            for p in points
            if p.allocation.gpu_type == kind and p.samples_per_s is not None
        )
        last: tuple[int, float] | None = None
        for size, speed in able:
            if last is None or speed / last[1] - 1 >= _REAL_GAIN * (size / last[0] - 1) > 0:
                last = (size, speed)
                chosen.add(size)
    return tuple(sorted(chosen))


def minimum_of(
    points: Sequence[CurvePoint], fewer: Sequence[CurvePoint], refuted: Set[Allocation]
) -> tuple[int | None, bool]:
    """Fewest GPUs asked about that hold the model, idle ones allowed, and whether that is proven.

    Parameters
    ----------
    points
        The points asked for.
    fewer
        Plans with idle GPUs for sizes that no layout uses whole.
    refuted
        Allocations that are proven to hold no layout, with idle GPUs either.
    """
    able = [p.num_gpus for p in (*points, *fewer) if p.status is PointStatus.FEASIBLE]
    if not able:
        return None, False
    least = min(able)
    smaller = [point for point in points if point.num_gpus < least]
    return least, all(p.status in REFUTED and p.allocation in refuted for p in smaller)


def combined_revision(clusters: Mapping[str | None, Cluster]) -> str:
    """The calibration revision of one cluster, or of several together."""
    revisions = [f"{kind}:{calibration_revision(each)}" for kind, each in clusters.items()]
    if len(clusters) == 1:
        return calibration_revision(next(iter(clusters.values())))
    return hashlib.sha256("\n".join(sorted(revisions)).encode()).hexdigest()[:16]
