"""Communication formulas."""

from __future__ import annotations

import pytest
from cost_examples import cluster
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.network import (
    all_gather_ms,
    all_reduce_bytes_sent,
    all_reduce_ms,
    effective_bytes_per_s,
    point_to_point_ms,
    reduce_scatter_ms,
    ring_all_reduce_ms,
)
from planner.errors import ClusterError
from planner.placement import data_group, tensor_group
from planner.specs import Tier

IDEAL = {"domain_efficiency": 1, "network_efficiency": 1, "collective_latency_ms": 0}
SIZE = 2 * 2048 * 12288


def test_published_ring_case() -> None:
    """Four all-reduces per layer, T = 8 at 300 GB/s and a flat ring of 16 at 25 GB/s."""
    assert 4 * ring_all_reduce_ms(SIZE, 8, 300e9) == pytest.approx(1.1744, abs=5e-5)
    assert 4 * ring_all_reduce_ms(SIZE, 16, 25e9) == pytest.approx(15.0995, abs=5e-5)


def test_inside_a_domain_the_collective_is_the_ring() -> None:
    machine = cluster(**IDEAL)
    found = all_reduce_ms(SIZE, tensor_group(machine, 8), machine)
    assert found == pytest.approx(ring_all_reduce_ms(SIZE, 8, 300e9, 3e-6))


def test_one_rank_a_node_is_a_ring_over_the_network() -> None:
    machine = cluster(**IDEAL)
    found = all_reduce_ms(SIZE, data_group(machine, 4, 8), machine)
    assert found == pytest.approx(ring_all_reduce_ms(SIZE, 4, 25e9, 5e-6))


def test_several_ranks_a_node_reduce_hierarchically() -> None:
    machine = cluster(**IDEAL)
    # Two nodes of eight: scatter inside, the eighth across, gather inside.
    inside = 2 * 7 / 8 * SIZE / 300e9 + 2 * 7 * 3e-6
    across = 2 * 1 / 2 * (SIZE / 8) / 25e9 + 2 * 5e-6
    found = all_reduce_ms(SIZE, tensor_group(machine, 16), machine)
    assert found == pytest.approx(1e3 * (inside + across))


def test_a_node_boundary_costs_more_than_its_ranks() -> None:
    machine = cluster()
    inside = all_reduce_ms(SIZE, tensor_group(machine, 8), machine)
    across = all_reduce_ms(SIZE, tensor_group(machine, 16), machine)
    assert across > 1.5 * inside


def test_all_reduce_is_a_scatter_and_a_gather_with_one_launch() -> None:
    machine = cluster(collective_latency_ms=0.5)
    group = tensor_group(machine, 16)
    both = reduce_scatter_ms(SIZE, group, machine) + all_gather_ms(SIZE, group, machine)
    assert all_reduce_ms(SIZE, group, machine) == pytest.approx(both - 0.5)


def test_point_to_point_has_no_launch_and_takes_efficiency_and_oversubscription() -> None:
    machine = cluster(collective_latency_ms=9, network_efficiency=0.5)
    expected = 5e-3 + 1e9 / 12.5e9 * 1e3
    assert point_to_point_ms(10**9, Tier.CLUSTER, machine) == pytest.approx(expected)
    link = machine.links[1].model_copy(update={"oversubscription": 4.0})
    narrow = machine.model_copy(update={"links": (machine.links[0], link)})
    assert effective_bytes_per_s(narrow, Tier.CLUSTER) == pytest.approx(12.5e9 / 4)
    assert point_to_point_ms(10**9, Tier.LOCAL, machine) == 0


def test_a_single_rank_communicates_nothing() -> None:
    machine = cluster()
    assert all_reduce_ms(SIZE, tensor_group(machine, 1), machine) == 0
    assert all_reduce_bytes_sent(SIZE, 1) == 0
    assert all_reduce_bytes_sent(8, 8) == 14


def test_a_missing_link_is_named() -> None:
    machine = cluster()
    machine = machine.model_copy(update={"links": machine.links[:1]})
    with pytest.raises(ClusterError, match="no link for traffic over the cluster tier"):
        point_to_point_ms(1, Tier.CLUSTER, machine)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from([2, 3, 8, 12, 16, 32]))
def test_more_bytes_never_take_less(first: int, second: int, ranks: int) -> None:
    machine = cluster()
    group = tensor_group(machine, ranks)
    low, high = sorted((first, second))
    assert all_reduce_ms(low, group, machine) <= all_reduce_ms(high, group, machine)
