"""Weight versions against a count over a long stream that never drains."""

from __future__ import annotations

import numpy as np
import pytest

from planner.cost.weight_versions import (
    pipedream_versions_with_replicas,
    staleness,
    weight_versions,
)
from planner.errors import ScheduleError
from planner.schedule_rules import RULES
from planner.specs import Schedule


def stream(warm_up: int, count: int) -> list[tuple[str, int]]:
    """1F1B on one rank for so long that its end does not matter."""
    operations = [("F", j) for j in range(warm_up)]
    for j in range(count):
        operations += [("F", j + warm_up), ("B", j)]
    return operations


def count_versions(warm_up: int, update: int, at_least: int) -> tuple[int, int]:
    """(most versions alive at once, staleness in the end) of one rank.

    Weights are updated after every ``update`` backwards. A micro-batch keeps the version its
    forward saw, and those between two updates share one: the newest there is when the first of
    them starts, but no newer than ``at_least`` updates before their own. A version is alive while
    a backward that uses it is to come.
    """
    groups = 6 * (warm_up // update + 2)
    operations = stream(warm_up, groups * update)
    used: dict[int, int] = {}
    newest, at = 0, {}
    for step, (kind, j) in enumerate(operations):
        if kind == "F" and j % update == 0:
            group = j // update
            used[group] = max(0, min(newest, group - at_least))
        if kind == "B" and j % update == update - 1:
            newest += 1
            at[newest] = step
    last_use: dict[int, int] = {}
    for step, (kind, j) in enumerate(operations):
        if kind == "B":
            last_use[used[j // update]] = step
    most = 0
    for step in range(len(operations)):
        alive = [v for v, end in last_use.items() if at.get(v, -1) < step <= end]
        most = max(most, len(alive))
    settled = groups - 2
    return most, settled - used[settled]


@pytest.mark.parametrize("ranks", range(1, 9))
def test_pipedream_keeps_one_version_a_microbatch_in_flight(ranks):
    versions = weight_versions(Schedule.PIPEDREAM, ranks, 4 * ranks)
    old = staleness(Schedule.PIPEDREAM, ranks)
    assert versions.tolist() == [ranks - s for s in range(ranks)]
    assert old.tolist() == [ranks - 1 - s for s in range(ranks)]
    for s in range(ranks):
        assert count_versions(ranks - 1 - s, 1, 0) == (versions[s], old[s])


@pytest.mark.parametrize("ranks", range(2, 10))
@pytest.mark.parametrize("update", range(1, 12))
def test_2bw_counted_over_a_stream(ranks, update):
    versions = weight_versions(Schedule.PIPEDREAM_2BW, ranks, update)
    old = staleness(Schedule.PIPEDREAM_2BW, ranks, update)
    for s in range(ranks):
        assert count_versions(ranks - 1 - s, update, 1) == (versions[s], old[s])


def test_2bw_keeps_two_with_enough_accumulation():
    for ranks in range(2, 12):
        for update in (ranks - 1, ranks, 3 * ranks):
            assert set(weight_versions(Schedule.PIPEDREAM_2BW, ranks, update).tolist()) == {2}
        assert set(staleness(Schedule.PIPEDREAM_2BW, ranks).tolist()) == {1}
        if ranks > 2:
            assert weight_versions(Schedule.PIPEDREAM_2BW, ranks, ranks - 2).max() == 3
    # A published count: 3 versions with 2 micro-batches an update and 4 stages.
    assert weight_versions(Schedule.PIPEDREAM_2BW, 4, 2).max() == 3


def test_one_rank_has_nothing_in_flight():
    for schedule in Schedule:
        assert weight_versions(schedule, 1, 4).tolist() == [1]
        assert staleness(schedule, 1).tolist() == [0]


def test_a_stream_of_pipedream_never_drains_however_few_microbatches_a_step_counts():
    assert weight_versions(Schedule.PIPEDREAM, 4, 2).tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize("schedule", [s for s in Schedule if not RULES[s].asynchronous])
def test_synchronous_schedules_keep_one_version(schedule):
    assert weight_versions(schedule, 4, 8).tolist() == [1, 1, 1, 1]
    assert staleness(schedule, 4).tolist() == [0, 0, 0, 0]


def test_versions_are_int64():
    for schedule in (Schedule.GPIPE, Schedule.PIPEDREAM, Schedule.PIPEDREAM_2BW):
        assert weight_versions(schedule, 4, 8).dtype == np.int64
        assert staleness(schedule, 4).dtype == np.int64


@pytest.mark.parametrize(
    ("replicas", "versions"),
    [
        ([1, 1, 1, 1], [4, 3, 2, 1]),
        ([1], [1]),
        ([8], [1]),
        # The PipeDream runtime: (num_ranks - 1 - earlier ranks) // ranks of the stage + 1.
        ([2, 1], [2, 1]),
        ([2, 1, 1], [2, 2, 1]),
        ([1, 2, 1], [4, 2, 1]),
        ([15, 1], [2, 1]),
        ([3, 4, 1], [3, 2, 1]),
    ],
)
def test_replicated_stages_of_pipedream(replicas, versions):
    assert pipedream_versions_with_replicas(replicas).tolist() == versions
    machines = sum(replicas)
    assert versions[0] == -(-machines // replicas[0])  # NOAM


def test_bad_counts_are_refused():
    with pytest.raises(ScheduleError, match="P=0"):
        weight_versions(Schedule.GPIPE, 0, 4)
    with pytest.raises(ScheduleError, match="M=0"):
        weight_versions(Schedule.PIPEDREAM_2BW, 4, 0)
    with pytest.raises(ScheduleError, match="P=-1"):
        staleness(Schedule.PIPEDREAM, -1)
    with pytest.raises(ScheduleError, match="M=0"):
        staleness(Schedule.PIPEDREAM_2BW, 2, 0)
    with pytest.raises(ScheduleError, match="a rank or more"):
        pipedream_versions_with_replicas([2, 0, 1])
    with pytest.raises(ScheduleError, match="a stage or more"):
        pipedream_versions_with_replicas([])
