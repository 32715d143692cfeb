"""Communication time by the alpha-beta model: latency + bytes / effective bandwidth.

A ring all-reduce of S bytes over n ranks takes 2(n-1) steps and sends 2(n-1)/n S from each rank;
a reduce-scatter or an all-gather is half of that (Thakur, Rabenseifner, Gropp 2005, "Optimization
of collective communication operations in MPICH", sections 4.1 and 4.5). A group that spans
several levels of wires reduces hierarchically: reduce-scatter inside, all-reduce of the shard
across, all-gather inside; every GPU drives its own share of the node's network links.
"""

from __future__ import annotations

from typing import NamedTuple

from planner.errors import ClusterError
from planner.placement import GroupPlacement
from planner.specs import Cluster, Tier

__all__ = [
    "Affine",
    "all_gather",
    "all_gather_ms",
    "all_reduce",
    "all_reduce_bytes_sent",
    "all_reduce_ms",
    "effective_bytes_per_s",
    "point_to_point",
    "point_to_point_ms",
    "reduce_scatter",
    "reduce_scatter_ms",
    "ring_all_reduce_ms",
]


class Affine(NamedTuple):
    """A time that is affine in the bytes moved."""

    latency_ms: float
    ms_per_byte: float

    def ms(self, num_bytes: float) -> float:
        """Time of ``num_bytes`` bytes; the latency alone for zero."""
        return self.latency_ms + num_bytes * self.ms_per_byte


_FREE = Affine(0.0, 0.0)


def ring_all_reduce_ms(
    num_bytes: float, ranks: int, bytes_per_s: float, latency_s: float = 0.0
) -> float:
    """Ring all-reduce of ``num_bytes`` over equal links: 2(n-1) alpha + 2(n-1)/n S/B.

    Examples
    --------
    >>> round(4 * ring_all_reduce_ms(2 * 2048 * 12288, 8, 300e9), 4)
    1.1744
    >>> round(4 * ring_all_reduce_ms(2 * 2048 * 12288, 16, 25e9), 4)
    15.0995
    """
    if ranks == 1:
        return 0.0
    transfer_s = 2 * (ranks - 1) / ranks * num_bytes / bytes_per_s
    return 1e3 * (2 * (ranks - 1) * latency_s + transfer_s)


def all_reduce_bytes_sent(num_bytes: int, ranks: int) -> int:
    """Bytes one rank sends in a ring all-reduce, rounded up."""
    return -(-2 * (ranks - 1) * num_bytes // ranks)


def _wire(cluster: Cluster, tier: Tier) -> tuple[float, float]:
    """(effective bytes per ms, latency in ms) of a tier."""
    try:
        link = cluster.link(tier)
    except KeyError:
        described = ", ".join(link.tier.value for link in cluster.links) or "none"
        raise ClusterError(
            f"describes no link for traffic over the {tier.value} tier",
            value=cluster.name,
            expected=f"a link of tier {tier.value} or slower; it has {described}",
        ) from None
    calibration = cluster.gpu.calibration
    inside_node = link.tier in (Tier.LOCAL, Tier.DOMAIN, Tier.NODE)
    share = calibration.domain_efficiency if inside_node else calibration.network_efficiency
    rate = link.bandwidth_bytes_per_s * share / link.oversubscription
    return rate / 1e3, link.latency_s * 1e3


def effective_bytes_per_s(cluster: Cluster, tier: Tier) -> float:
    """Reachable bytes per second and GPU over a tier: rate x efficiency / oversubscription.

    Raises
    ------
    ClusterError
        The cluster describes no link of this tier or a slower one.
    """
    return _wire(cluster, tier)[0] * 1e3


def point_to_point(tier: Tier, cluster: Cluster) -> Affine:
    """One send over a tier, as latency and time per byte."""
    if tier is Tier.LOCAL:
        return _FREE
    bytes_per_ms, latency_ms = _wire(cluster, tier)
    return Affine(latency_ms, 1.0 / bytes_per_ms)


def point_to_point_ms(num_bytes: float, tier: Tier, cluster: Cluster) -> float:
    """Time of one send: latency + bytes / bandwidth.

    Raises
    ------
    ClusterError
        The cluster describes no link of this tier or a slower one.
    """
    return point_to_point(tier, cluster).ms(num_bytes)


def _one_way(placement: GroupPlacement, cluster: Cluster) -> tuple[float, float]:
    """(latency, ms per byte) of a reduce-scatter or an all-gather without its launch."""
    latency = per_byte = 0.0
    shard = 1.0
    for tier, fan_out in placement.levels:
        bytes_per_ms, step_ms = _wire(cluster, tier)
        latency += (fan_out - 1) * step_ms
        per_byte += shard * (fan_out - 1) / fan_out / bytes_per_ms
        shard /= fan_out
    return latency, per_byte


def reduce_scatter(placement: GroupPlacement, cluster: Cluster) -> Affine:
    """Reduce-scatter as latency and time per byte of the whole (unsharded) tensor."""
    if placement.ranks == 1:
        return _FREE
    latency, per_byte = _one_way(placement, cluster)
    return Affine(latency + cluster.gpu.calibration.collective_latency_ms, per_byte)


def all_gather(placement: GroupPlacement, cluster: Cluster) -> Affine:
    """All-gather as latency and time per byte of the whole (gathered) tensor."""
    return reduce_scatter(placement, cluster)


def all_reduce(placement: GroupPlacement, cluster: Cluster) -> Affine:
    """All-reduce as latency and time per byte: one launch, both directions."""
    if placement.ranks == 1:
        return _FREE
    latency, per_byte = _one_way(placement, cluster)
    launch = cluster.gpu.calibration.collective_latency_ms
    return Affine(2 * latency + launch, 2 * per_byte)


def all_reduce_ms(num_bytes: float, placement: GroupPlacement, cluster: Cluster) -> float:
    """Time to all-reduce a tensor of ``num_bytes`` bytes.

    Raises
    ------
    ClusterError
        The cluster describes no link for a tier the group uses.
    """
    return all_reduce(placement, cluster).ms(num_bytes)


def reduce_scatter_ms(num_bytes: float, placement: GroupPlacement, cluster: Cluster) -> float:
    """Time to reduce-scatter a tensor of ``num_bytes`` bytes (its size before the scatter)."""
    return reduce_scatter(placement, cluster).ms(num_bytes)


def all_gather_ms(num_bytes: float, placement: GroupPlacement, cluster: Cluster) -> float:
    """Time to all-gather a tensor of ``num_bytes`` bytes (its size after the gather)."""
    return all_gather(placement, cluster).ms(num_bytes)
