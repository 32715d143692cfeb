"""Loops that are compiled where numba is loaded find what the plain ones find."""

from __future__ import annotations

import numpy as np
import pytest
from step_instances import step_problem

from planner.schedules import path_kernels, recompute_kernel, recurrence_kernel, simulate
from planner.schedules.prefix_walks import surviving_stages
from planner.schedules.prices import prices_of
from planner.schedules.stage_terms import StageTerms
from planner.specs import Recompute, Schedule, Sends

pytest.importorskip("numba")


@pytest.mark.parametrize("later", [0, 1, 3])
def test_timelines(monkeypatch, later):
    rng = np.random.default_rng(later)
    for _ in range(60):
        ranks, count = rng.integers(1, 7), rng.integers(1, 30)
        candidates = int(rng.integers(1, 20))
        f, b = rng.integers(0, 50, (2, candidates, ranks))
        ef, eb = rng.integers(0, 30, (2, candidates, ranks - 1))
        arguments = (Schedule.ONE_F_ONE_B, f, b, ef, eb, int(count))
        options = {"later_ranks": later, "turnaround": rng.integers(0, 90, candidates)}
        monkeypatch.setattr(simulate, "pays", lambda *_: False)
        plain = simulate.simulate_many(*arguments, **options)
        monkeypatch.setattr(simulate, "pays", lambda *_: True)
        assert (simulate.simulate_many(*arguments, **options) == plain).all()
        monkeypatch.setattr(simulate, "compiled_recurrence", lambda: recurrence_kernel.recurrence)
        assert (simulate.simulate_many(*arguments, **options) == plain).all()
        monkeypatch.undo()


@pytest.mark.parametrize("sends", Sends)
def test_one_timeline(monkeypatch, sends):
    rng = np.random.default_rng(7)
    for _ in range(60):
        ranks, count = int(rng.integers(1, 7)), int(rng.integers(1, 30))
        f, b = rng.integers(0, 50, (2, ranks)).tolist()
        ef, eb = rng.integers(0, 30, (2, ranks - 1)).tolist()
        both = []
        for pays in (False, True):
            monkeypatch.setattr(simulate, "pays", lambda *_, own=pays: own)
            both.append(simulate.simulate(Schedule.ONE_F_ONE_B, f, b, ef, eb, count, sends))
        assert both[0] == both[1]


def test_what_stages_recompute(monkeypatch):
    modes = set()
    for seed in range(300):
        problem = step_problem(seed)
        priced = prices_of(problem)
        if Recompute.LAYERS in priced.modes:
            continue
        modes.update(priced.modes)
        count = problem.num_blocks + 1
        stage, start, end = np.ogrid[: problem.num_stages, :count, :count]
        monkeypatch.setattr(recompute_kernel, "pays", lambda: False)
        plain = priced._recompute(stage, start, end)
        monkeypatch.setattr(recompute_kernel, "pays", lambda: True)
        compiled = priced._recompute(stage, start, end)
        monkeypatch.setattr(recompute_kernel, "compiled_choose", lambda: recompute_kernel.choose)
        slow = priced._recompute(stage, start, end)
        monkeypatch.undo()
        inside = np.broadcast_to(start < end, plain[0].shape)
        for one, other, third in zip(plain, compiled, slow, strict=True):
            assert (one[inside] == other[inside]).all(), seed
            assert (one[inside] == third[inside]).all(), seed
    assert {Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL} <= modes


@pytest.mark.parametrize("compiled", [True, False])
def test_paths_through_the_windows(monkeypatch, compiled):
    looked = 0
    for seed in range(200):
        monkeypatch.setattr(path_kernels, "pays", lambda: False)
        terms = StageTerms(step_problem(seed))
        if terms.empty:
            continue
        looked += 1
        both = terms.edge_forward + terms.edge_backward

        def found(terms=terms, both=both):
            yield terms.shortest_before(terms.forward, terms.edge_forward)
            yield terms.shortest_after(terms.forward + terms.backward, both)
            yield terms.largest_after(terms.primary)
            least = terms.least_largest(terms.primary)
            if least is None:
                return
            yield np.array(terms.balanced_path(terms.primary, least))
            for limit in (least + 1, least + least // 16, 2 * least):
                left = surviving_stages(terms, limit)
                yield np.zeros(1) if left is None else left.possible

        plain = list(found())
        monkeypatch.setattr(path_kernels, "pays", lambda: True)
        if not compiled:
            monkeypatch.setattr(path_kernels, "compiled_path", lambda path: path)
        for one, other in zip(plain, found(), strict=True):
            assert (one == other).all(), seed
        monkeypatch.undo()
    assert looked > 100
