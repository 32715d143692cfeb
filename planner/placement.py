"""Ranks to GPUs: which wires a group of ranks talks over.

Global rank order is tp-dp-pp with the tensor rank fastest and the pipeline rank slowest (cp and
ep are 1), and rank r sits on GPU r: node ``r // gpus_per_node``. Everything here is integer
arithmetic on that order. Groups that line up with the units of the cluster are answered in O(1);
the others by one vectorised count over the groups' distinct alignments, cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import lcm
from typing import overload

import numpy as np
from numpy.typing import NDArray

from planner.errors import LayoutError
from planner.specs import Cluster, Tier

__all__ = [
    "GroupPlacement",
    "boundary_tiers",
    "data_group",
    "pair_tier",
    "stays_in_domain",
    "tensor_group",
    "tied_group",
]

_ORDER = {tier: index for index, tier in enumerate(Tier)}
Units = tuple[tuple[Tier, int], ...]


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """How the ranks of a collective group are spread over the cluster.

    Of the groups of one kind (there is one per stage, or per tensor rank), this is the one on
    the slowest wires.
    """

    ranks: int
    tier: Tier
    """Slowest wires used; LOCAL for a group of one."""
    levels: tuple[tuple[Tier, int], ...]
    """(tier, fan-out) from the fastest wires to the slowest; the fan-outs multiply to ``ranks``.

    A level appears only where every unit of the level below holds equally many ranks, which is
    what a hierarchical collective needs; otherwise it is merged into the next slower one.
    """

    @property
    def ranks_per_domain(self) -> int:
        """Ranks of the group that share an nvlink domain (1 where they are spread unevenly)."""
        return next((fan_out for tier, fan_out in self.levels if tier is Tier.DOMAIN), 1)


_ALONE = GroupPlacement(1, Tier.LOCAL, ())


def _units(cluster: Cluster) -> Units:
    """Units of the cluster, smallest first: (tier reached inside it, its number of GPUs)."""
    total = cluster.num_gpus
    sizes = [(Tier.DOMAIN, cluster.nvlink_domain), (Tier.NODE, cluster.gpus_per_node)]
    if cluster.nodes_per_rack is not None:
        sizes.append((Tier.RACK, cluster.nodes_per_rack * cluster.gpus_per_node))
    units: list[tuple[Tier, int]] = []
    for tier, size in sizes:
        # A node inside a larger nvlink domain (NVL72) is no unit of its own, and so on up.
        if size < total and (not units or size > units[-1][1]):
            units.append((tier, size))
        elif size >= total and (not units or units[-1][1] < total):
            units.append((tier, total))
            break
    if units[-1][1] < total:
        units.append((Tier.CLUSTER, total))
    return tuple(units)


def _check(cluster: Cluster, **degrees: int) -> None:
    product = 1
    for name, degree in degrees.items():
        if degree < 1:
            raise LayoutError(f"is no {name} degree", value=degree, expected="an integer >= 1")
        product *= degree
    if product > cluster.num_gpus:
        shown = " x ".join(f"{name}={degree}" for name, degree in degrees.items())
        raise LayoutError(
            "needs more GPUs than the cluster has",
            value=shown,
            expected=f"a product of at most {cluster.num_gpus}",
        )


def _inside(units: Units, first: int, last: int) -> Tier:
    """Fastest tier whose unit holds both GPUs."""
    for tier, size in units:
        if first // size == last // size:
            return tier
    return Tier.CLUSTER


def pair_tier(cluster: Cluster, first: int, second: int) -> Tier:
    """Slowest wires between two GPUs.

    Parameters
    ----------
    cluster
        Where the GPUs are.
    first, second
        Global ranks (= GPU numbers), 0-based.
    """
    if first == second:
        return Tier.LOCAL
    return _inside(_units(cluster), min(first, second), max(first, second))


def tensor_group(cluster: Cluster, tp: int) -> GroupPlacement:
    """Placement of a tensor-parallel group: tp consecutive ranks.

    Raises
    ------
    LayoutError
        tp < 1 or more ranks than GPUs.
    """
    _check(cluster, tp=tp)
    return _spread(_units(cluster), cluster.num_gpus, 1, tp, tp, 1)


@overload
def stays_in_domain(cluster: Cluster, tp: int, num_gpus: int) -> bool: ...
@overload
def stays_in_domain(
    cluster: Cluster, tp: int, num_gpus: NDArray[np.int64]
) -> NDArray[np.bool_]: ...
def stays_in_domain(
    cluster: Cluster, tp: int, num_gpus: int | NDArray[np.int64]
) -> bool | NDArray[np.bool_]:
    """Whether tensor groups of ``tp`` consecutive ranks never leave an nvlink domain.

    Parameters
    ----------
    num_gpus
        World size, or an array of world sizes; the answer has the same shape.

    Notes
    -----
    Groups line up with domains that they divide; others straddle two of them unless all ranks
    share the first one.
    """
    return (num_gpus <= cluster.nvlink_domain) | (cluster.nvlink_domain % tp == 0)


def data_group(cluster: Cluster, dp: int, tp: int) -> GroupPlacement:
    """Placement of a data-parallel group: dp ranks, tp apart.

    Raises
    ------
    LayoutError
        A degree < 1, or more ranks than GPUs.
    """
    _check(cluster, dp=dp, tp=tp)
    return _spread(_units(cluster), cluster.num_gpus, tp, dp, dp * tp, tp)


def boundary_tiers(cluster: Cluster, dp: int, tp: int, pp: int) -> list[Tier]:
    """Slowest wires that the sends from stage s to stage s + 1 cross, s = 0 .. pp-2.

    Rank r of a stage sends to r + dp*tp. The pairs (r, r + dp*tp) of one stage overlap as
    intervals, so all of them stay inside a unit exactly when both whole stages do.

    Raises
    ------
    LayoutError
        A degree < 1, or more ranks than GPUs.
    """
    _check(cluster, dp=dp, tp=tp, pp=pp)
    units = _units(cluster)
    size = dp * tp
    return [_inside(units, stage * size, (stage + 2) * size - 1) for stage in range(pp - 1)]


def tied_group(cluster: Cluster, dp: int, tp: int, pp: int) -> GroupPlacement:
    """Placement of the pairs on the first and last stage that share tied weights.

    Raises
    ------
    LayoutError
        A degree < 1, or more ranks than GPUs.
    """
    _check(cluster, dp=dp, tp=tp, pp=pp)
    if pp == 1:
        return _ALONE
    tier = _inside(_units(cluster), 0, pp * dp * tp - 1)
    return GroupPlacement(2, tier, ((tier, 2),))


@lru_cache(maxsize=65_536)
def _spread(
    units: Units, total: int, stride: int, ranks: int, block: int, lanes: int
) -> GroupPlacement:
    """The worst placement among groups {k*block + lane + i*stride : i < ranks}.

    k runs over the whole blocks of the cluster and lane over ``range(lanes)``.
    """
    if ranks == 1:
        return _ALONE
    if all(_aligned(size, stride, block) for _, size in units[:-1]):
        counts = {size: _distinct(size, stride, ranks) for _, size in units[:-1]}
        return _placement(units, ranks, [(counts[size], True) for _, size in units[:-1]])
    period = lcm(*(size for _, size in units[:-1]), block) // block
    blocks = np.arange(min(total // block, period), dtype=np.int64) * block
    starts = (blocks[:, None] + np.arange(lanes, dtype=np.int64)[None, :]).reshape(-1)
    gpus = starts[:, None] + np.arange(ranks, dtype=np.int64)[None, :] * stride
    found: set[GroupPlacement] = set()
    spreads = []
    for _, size in units[:-1]:
        unit = gpus // size
        changes = unit[:, 1:] != unit[:, :-1]
        number = changes.sum(axis=1) + 1
        # Equal shares: rank i lies in the (i // share)-th unit of its group.
        share = np.maximum(ranks // number, 1)
        expected = np.arange(1, ranks)[None, :] % share[:, None] == 0
        even = (number * share == ranks) & (changes == expected).all(axis=1)
        spreads.append(np.stack([number, even], axis=1))
    for rows in np.unique(np.stack(spreads, axis=1), axis=0):
        found.add(_placement(units, ranks, [(int(n), bool(even)) for n, even in rows]))
    return max(found, key=_slowness)


def _aligned(size: int, stride: int, block: int) -> bool:
    """Whether every group meets the units of this size in the same even way."""
    if size % block == 0:
        return True
    return block % size == 0 and (size % stride == 0 or stride % size == 0)


def _distinct(size: int, stride: int, ranks: int) -> int:
    """Units of a size that an aligned group touches."""
    per_unit = max(1, size // stride)
    return -(-ranks // per_unit)


def _placement(units: Units, ranks: int, spread: list[tuple[int, bool]]) -> GroupPlacement:
    """Levels from the number of units touched per tier, and whether evenly."""
    levels: list[tuple[Tier, int]] = []
    left = ranks  # ranks, or units of the level below, still to be joined
    for (tier, _), (number, even) in zip(units, [*spread, (1, True)], strict=True):
        if even and left % number == 0 and left > number:
            levels.append((tier, left // number))
            left = number
        if number == 1:
            break
    return GroupPlacement(ranks, levels[-1][0], tuple(levels))


def _slowness(group: GroupPlacement) -> tuple[int, int, tuple[int, ...]]:
    """Orders placements: slowest tier first, then the largest fan-out over it."""
    return (
        _ORDER[group.tier],
        group.levels[-1][1],
        tuple(fan_out for _, fan_out in reversed(group.levels)),
    )
