"""The rule of shapes on arrays says what the rule of one shape says."""

from __future__ import annotations

import numpy as np
import pytest

from planner.schedule_rules import legal_shapes, shape_problem
from planner.specs import Schedule


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("num_chunks", [1, 2, 3])
def test_shapes_on_arrays_agree_with_one_by_one(schedule: Schedule, num_chunks: int) -> None:
    grid = np.indices((9, 40)).reshape(2, -1) + 1
    found = legal_shapes(schedule, grid[0], grid[1], num_chunks)
    for p, m, legal in zip(*grid.tolist(), found.tolist(), strict=True):
        problem = shape_problem(schedule, p, m, num_chunks)
        assert legal == (problem is None), (p, m, problem)
