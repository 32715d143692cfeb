"""Placement against an enumeration of every rank."""

from __future__ import annotations

from collections import Counter
from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.errors import LayoutError
from planner.placement import boundary_tiers, data_group, pair_tier, tensor_group, tied_group
from planner.specs import Cluster, Device, Link, Tier

GPU = Device(name="g", memory_bytes=1, peak_flops={}, memory_bandwidth_bytes_per_s=1)
ORDER = list(Tier)


def make(nodes: int, gpus: int, domain: int, rack: int | None = None) -> Cluster:
    return Cluster(
        name="c",
        nodes=nodes,
        gpus_per_node=gpus,
        nvlink_domain=domain,
        nodes_per_rack=rack,
        gpu=GPU,
        links=(Link(tier=Tier.CLUSTER, bandwidth_bytes_per_s=1),),
    )


CLUSTERS = [
    make(4, 8, 8),
    make(3, 8, 8),
    make(4, 8, 2),
    make(6, 4, 4, rack=2),
    make(1, 8, 8),
    make(1, 8, 4),
    make(12, 4, 12, rack=6),
    make(5, 6, 3, rack=2),
]


def tier_between(cluster: Cluster, first: int, second: int) -> Tier:
    if first == second:
        return Tier.LOCAL
    if first // cluster.nvlink_domain == second // cluster.nvlink_domain:
        return Tier.DOMAIN
    if first // cluster.gpus_per_node == second // cluster.gpus_per_node:
        return Tier.NODE
    rack = cluster.nodes_per_rack
    if rack is not None:
        rack_gpus = rack * cluster.gpus_per_node
        if first // rack_gpus == second // rack_gpus:
            return Tier.RACK
    return Tier.CLUSTER


def slowest(cluster: Cluster, groups: list[list[int]]) -> Tier:
    tiers = [tier_between(cluster, group[0], rank) for group in groups for rank in group]
    return max(tiers, key=ORDER.index)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Cluster, int, int, int]:
    cluster = draw(st.sampled_from(CLUSTERS))
    dp, tp, pp = (draw(st.integers(1, 12)) for _ in range(3))
    assume(dp * tp * pp <= cluster.num_gpus)
    return cluster, dp, tp, pp


@given(layouts())
def test_against_all_ranks(layout: tuple[Cluster, int, int, int]) -> None:
    cluster, dp, tp, pp = layout
    total = cluster.num_gpus
    block = dp * tp
    tensor = [list(range(start, start + tp)) for start in range(0, total - tp + 1, tp)]
    data = [
        [start + lane + i * tp for i in range(dp)]
        for start in range(0, total - block + 1, block)
        for lane in range(tp)
    ]
    for group, groups in ((tensor_group(cluster, tp), tensor), (data_group(cluster, dp, tp), data)):
        assert group.ranks == len(groups[0])
        assert group.tier is slowest(cluster, groups)
        assert prod(fan_out for _, fan_out in group.levels) == group.ranks
        assert [ORDER.index(t) for t, _ in group.levels] == sorted(
            {ORDER.index(t) for t, _ in group.levels}
        )
        # The levels claim equal shares; some group of the layout must be spread that way.
        assert any(_levels_hold(cluster, group.levels, ranks) for ranks in groups)
    expected = []
    for stage in range(pp - 1):
        pairs = [(rank, rank + block) for rank in range(stage * block, (stage + 1) * block)]
        expected.append(slowest(cluster, [list(pair) for pair in pairs]))
    assert boundary_tiers(cluster, dp, tp, pp) == expected
    ends = [[rank, rank + (pp - 1) * block] for rank in range(block)]
    assert tied_group(cluster, dp, tp, pp).tier is slowest(cluster, ends)


def _levels_hold(cluster: Cluster, levels: tuple[tuple[Tier, int], ...], ranks: list[int]) -> bool:
    share = 1
    for tier, fan_out in levels:
        share *= fan_out
        reach = Counter()
        for rank in ranks:
            anchor = next(
                other
                for other in ranks
                if ORDER.index(tier_between(cluster, other, rank)) <= ORDER.index(tier)
            )
            reach[anchor] += 1
        if set(reach.values()) != {share}:
            return False
    return True


def test_groups_that_do_not_align_with_nodes() -> None:
    """tp = 4, dp = 3 on nodes of eight: GPUs 0, 4 and 8 are one group."""
    cluster = make(3, 8, 8)
    group = data_group(cluster, 3, 4)
    assert (group.tier, group.levels, group.ranks_per_domain) == (
        Tier.CLUSTER,
        ((Tier.CLUSTER, 3),),
        1,
    )
    assert boundary_tiers(cluster, 3, 4, 2) == [Tier.CLUSTER]


def test_hierarchy_of_an_aligned_group() -> None:
    cluster = make(8, 8, 8, rack=4)
    group = data_group(cluster, 32, 2)
    assert group.levels == ((Tier.DOMAIN, 4), (Tier.RACK, 4), (Tier.CLUSTER, 2))
    assert group.ranks_per_domain == 4


def test_nvlink_domain_larger_and_smaller_than_a_node() -> None:
    rack_scale = make(36, 4, 72)
    assert tensor_group(rack_scale, 8).tier is Tier.DOMAIN
    assert pair_tier(rack_scale, 0, 71) is Tier.DOMAIN
    assert pair_tier(rack_scale, 71, 72) is Tier.CLUSTER
    pairs = make(1, 4, 2)
    # NVLink pairs {0,1}, {2,3}: T = 2 rides them, P crosses.
    assert tensor_group(pairs, 2).tier is Tier.DOMAIN
    assert boundary_tiers(pairs, 1, 2, 2) == [Tier.NODE]


def test_consecutive_stages_cross_nodes_as_rarely_as_can_be() -> None:
    """32 stages of one GPU on four nodes: three crossings (a published case)."""
    tiers = boundary_tiers(make(4, 8, 8), 1, 1, 32)
    assert [s for s, tier in enumerate(tiers) if tier is Tier.CLUSTER] == [7, 15, 23]


def test_large_clusters_are_cheap() -> None:
    cluster = make(2048, 8, 8)
    assert data_group(cluster, 128, 8).levels == ((Tier.CLUSTER, 128),)
    assert len(boundary_tiers(cluster, 128, 8, 16)) == 15


@pytest.mark.parametrize("degrees", [(0, 1), (5, 8)])
def test_impossible_degrees_are_refused(degrees: tuple[int, int]) -> None:
    with pytest.raises(LayoutError):
        data_group(make(4, 8, 8), *degrees)
