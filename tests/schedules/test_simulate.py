"""The recurrences equal an event simulation of the orders; the textbook's numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from event_oracle import gpipe_order, one_f_one_b_order, run_orders

from planner.errors import InputError
from planner.schedules.simulate import RECURRENT, bubble_fraction, simulate, simulate_many
from planner.specs import Schedule, Sends

ORDERS = {Schedule.GPIPE: gpipe_order, Schedule.ONE_F_ONE_B: one_f_one_b_order}


def random_case(rng: random.Random):
    ranks = rng.randint(1, 7)
    microbatches = rng.choice([1, 2, 3, rng.randint(1, 12), rng.randint(1, 60)])
    size = rng.choice([3, 20, 1000])
    edge = rng.choice([0, 1, size // 2, 3 * size])
    f = [rng.randint(0 if size == 3 else 1, size) for _ in range(ranks)]
    b = [rng.randint(1, 2 * size) for _ in range(ranks)]
    ef = [rng.randint(0, edge) for _ in range(ranks - 1)]
    eb = [rng.randint(0, edge) for _ in range(ranks - 1)]
    return ranks, microbatches, f, b, ef, eb


@pytest.mark.parametrize("schedule", RECURRENT)
@pytest.mark.parametrize("sends", list(Sends))
def test_equals_event_simulation(schedule, sends):
    rng = random.Random(f"{schedule}{sends}")
    for _ in range(1200):
        ranks, microbatches, f, b, ef, eb = random_case(rng)
        orders = [ORDERS[schedule](microbatches, s, ranks) for s in range(ranks)]
        finish = run_orders(orders, f, b, ef, eb, sends is Sends.BLOCKING)
        timing = simulate(schedule, f, b, ef, eb, microbatches, sends)
        assert list(timing.finish) == finish, (f, b, ef, eb, microbatches)
        assert timing.makespan == max(finish)


def test_periodic_jump_is_exact_on_long_runs():
    rng = random.Random(5)
    for _ in range(60):
        ranks, _, f, b, ef, eb = random_case(rng)
        microbatches = rng.randint(150, 400)
        orders = [one_f_one_b_order(microbatches, s, ranks) for s in range(ranks)]
        finish = run_orders(orders, f, b, ef, eb, False)
        timing = simulate(Schedule.ONE_F_ONE_B, f, b, ef, eb, microbatches)
        assert list(timing.finish) == finish
        rows = simulate_many(
            Schedule.ONE_F_ONE_B, *(np.array([x], np.int64) for x in (f, b, ef, eb)), microbatches
        )
        assert rows[0].tolist() == finish


@pytest.mark.parametrize("schedule", RECURRENT)
@pytest.mark.parametrize("sends", list(Sends))
def test_many_equals_one_by_one(schedule, sends):
    rng = np.random.default_rng(3)
    for _ in range(60):
        ranks, count = int(rng.integers(1, 8)), int(rng.integers(1, 30))
        microbatches = int(rng.choice([1, 2, 5, 9, 40, 90]))
        f = rng.integers(1, 30, (count, ranks))
        b = rng.integers(1, 50, (count, ranks))
        ef = rng.integers(0, 8, (count, ranks - 1))
        eb = rng.integers(0, 8, (count, ranks - 1))
        if count > 3:
            f[:3], b[:3] = 4, 9
        many = simulate_many(schedule, f, b, ef, eb, microbatches, sends)
        for k in range(count):
            one = simulate(schedule, *(x[k].tolist() for x in (f, b, ef, eb)), microbatches, sends)
            assert many[k].tolist() == list(one.finish)


@pytest.mark.parametrize("schedule", RECURRENT)
def test_known_ranks_alone_never_exceed_the_whole(schedule):
    rng = np.random.default_rng(8)
    for _ in range(150):
        ranks, count = int(rng.integers(2, 8)), 12
        known = int(rng.integers(1, ranks))
        microbatches = int(rng.choice([1, 2, 5, 9, 40, 70]))
        f = rng.integers(1, 30, (count, ranks))
        b = rng.integers(1, 50, (count, ranks))
        ef = rng.integers(0, 12, (count, ranks - 1))
        eb = rng.integers(0, 12, (count, ranks - 1))
        f[0], b[0] = 3, 6
        whole = simulate_many(schedule, f, b, ef, eb, microbatches)
        rest = f[:, known:].sum(1) + b[:, known:].sum(1)
        rest += ef[:, known - 1 :].sum(1) + eb[:, known - 1 :].sum(1)
        part = simulate_many(
            schedule,
            f[:, :known],
            b[:, :known],
            ef[:, : known - 1],
            eb[:, : known - 1],
            microbatches,
            later_ranks=ranks - known,
            turnaround=rest,
        )
        assert (part <= whole[:, :known]).all()


def test_textbook_bubbles():
    for microbatches, num, den in ((8, 3, 11), (4, 3, 7)):
        for schedule in RECURRENT:
            timing = simulate(schedule, [1] * 4, [1] * 4, [0] * 3, [0] * 3, microbatches)
            assert bubble_fraction(timing, 4) == pytest.approx(num / den, abs=1e-12)
    assert simulate(Schedule.GPIPE, [1] * 4, [1] * 4, [0] * 3, [0] * 3, 8).makespan == 22


def test_utilisation_of_eight_stages():
    printed = {1: 12.5, 2: 22.2, 4: 36.4, 8: 53.3, 16: 69.6, 32: 82.1, 64: 90.1, 128: 94.8}
    for microbatches, percent in printed.items():
        for schedule in RECURRENT:
            timing = simulate(schedule, [1] * 8, [2] * 8, [0] * 7, [0] * 7, microbatches)
            used = 1 - bubble_fraction(timing, 8)
            assert round(100 * used, 1) == percent
            assert used == pytest.approx(microbatches / (microbatches + 7))


# (f, b, edge, M, 1F1B, GPipe, 1F1B with blocking sends): measured by independent simulators.
TABLE = [
    ([1] * 4, [2] * 4, 0, 8, 33, 33, None),
    ([1] * 4, [2] * 4, 1, 8, 49, 39, 52),
    ([1] * 2, [1] * 2, 1, 4, 14, 12, 15),
    ([10, 1, 1, 1], [20, 2, 2, 2], 0, 8, 240, 249, None),
    ([1, 1, 1, 10], [2, 2, 2, 20], 0, 8, 249, 249, None),
    ([100, 10, 1, 1], [10, 100, 1, 1], 0, 8, 1170, 1624, None),
    ([5, 1, 1], [1, 5, 1], 0, 6, 46, 64, None),
    ([3, 1], [1, 3], 0, 4, 20, 26, None),
    ([4, 1, 1, 1], [8, 2, 2, 2], 3, 8, 114, 123, 126),
]


@pytest.mark.parametrize("case", TABLE)
def test_table_of_uneven_instances(case):
    f, b, edge, microbatches, one_f_one_b, gpipe, blocking = case
    edges = [edge] * (len(f) - 1)
    assert simulate(Schedule.ONE_F_ONE_B, f, b, edges, edges, microbatches).makespan == one_f_one_b
    assert simulate(Schedule.GPIPE, f, b, edges, edges, microbatches).makespan == gpipe
    if blocking is not None:
        timing = simulate(Schedule.ONE_F_ONE_B, f, b, edges, edges, microbatches, Sends.BLOCKING)
        assert timing.makespan == blocking


def test_wrong_lengths_are_refused():
    with pytest.raises(InputError, match="edge costs"):
        simulate(Schedule.GPIPE, [1, 1], [1, 1], [], [], 4)
    with pytest.raises(InputError, match="micro-batches"):
        simulate(Schedule.GPIPE, [1], [1], [], [], 0)
    with pytest.raises(InputError, match="backward times"):
        simulate(Schedule.GPIPE, [1], [1, 2], [], [], 3)
