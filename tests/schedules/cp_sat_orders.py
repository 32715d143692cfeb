"""The best order of split backwards under memory limits, by constraint programming.

Written from the definitions alone: stages on ranks (one each, or folded), start times of F, I and
W, ranks that do one thing at a time, sends that travel, activations that fill a rank's memory.
Only for small pipelines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.schedules.timeline import StageTimes
from planner.specs import Sends

_MEMORY_UNITS = 1000


@dataclass(frozen=True)
class Optimum:
    value: int
    bound: int

    @property
    def proven(self) -> bool:
        return self.value == self.bound


def best_order(
    num_ranks: int,
    num_microbatches: int,
    times: StageTimes,
    limits: Sequence[float],
    *,
    folded: bool = False,
    freed_at_i: float = 0.0,
    aim: str = "span",
    sends: Sends = Sends.OVERLAPPED,
    seconds: float = 10.0,
) -> Optimum | None:
    """Least span or makespan; None where nothing was found in time."""
    stages = num_ranks * (2 if folded else 1)
    rank_of = [s if s < num_ranks else 2 * num_ranks - 1 - s for s in range(stages)]
    spent = {
        "F": times.forward.tolist(),
        "I": times.input_gradient.tolist(),
        "W": times.weight_gradient.tolist(),
    }
    ahead, back = times.edge_forward.tolist(), times.edge_backward.tolist()
    ahead = [e if rank_of[s] != rank_of[s + 1] else 0 for s, e in enumerate(ahead)]
    back = [e if rank_of[s] != rank_of[s + 1] else 0 for s, e in enumerate(back)]
    blocking = sends is Sends.BLOCKING
    horizon = num_microbatches * (sum(map(sum, spent.values())) + sum(ahead) + sum(back))
    model = cp_model.CpModel()
    start = {
        (kind, s, m): model.new_int_var(0, horizon, f"{s}{kind}{m}")
        for kind in "FIW"
        for s in range(stages)
        for m in range(num_microbatches)
    }
    first_start = [0] * num_ranks
    for r in range(1, num_ranks):
        first_start[r] = first_start[r - 1] + spent["F"][r - 1] + ahead[r - 1]
    busy: list[list[cp_model.IntervalVar]] = [[] for _ in range(num_ranks)]
    held: list[list[tuple[cp_model.IntervalVar, int]]] = [[] for _ in range(num_ranks)]
    ends: list[list[cp_model.LinearExpr]] = [[] for _ in range(num_ranks)]
    at_i = round(freed_at_i * _MEMORY_UNITS)
    for s in range(stages):
        r = rank_of[s]
        for m in range(num_microbatches):
            for kind in "FIW":
                hold = 0
                if blocking and kind == "F" and s + 1 < stages:
                    hold = ahead[s]
                if blocking and kind == "I" and s > 0:
                    hold = back[s - 1]
                size = spent[kind][s] + hold
                begin = start[kind, s, m]
                busy[r].append(model.new_fixed_size_interval_var(begin, size, ""))
                ends[r].append(begin + size)
                if m:  # micro-batches are alike
                    model.add(begin >= start[kind, s, m - 1] + size)
            model.add(start["I", s, m] >= start["F", s, m] + spent["F"][s])
            model.add(start["W", s, m] >= start["I", s, m] + spent["I"][s])
            if s + 1 < stages:
                travelled = spent["F"][s] + ahead[s]
                model.add(start["F", s + 1, m] >= start["F", s, m] + travelled)
                travelled = spent["I"][s + 1] + back[s]
                model.add(start["I", s, m] >= start["I", s + 1, m] + travelled)
            for kind, amount in (("I", at_i), ("W", _MEMORY_UNITS - at_i)):
                if amount:
                    length = model.new_int_var(0, horizon, "")
                    until = start[kind, s, m] + spent[kind][s]
                    held[r].append(
                        (model.new_interval_var(start["F", s, m], length, until, ""), amount)
                    )
    for r in range(num_ranks):
        model.add_no_overlap(busy[r])
        room = int(limits[r] * (2 if folded else 1) * _MEMORY_UNITS + 1e-6)
        model.add_cumulative([i for i, _ in held[r]], [a for _, a in held[r]], room)
    cost = model.new_int_var(0, horizon, "cost")
    for r in range(num_ranks):
        from_when = first_start[r] if aim == "span" else 0
        for end in ends[r]:
            model.add(cost >= end - from_when)
    model.minimize(cost)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return Optimum(round(solver.objective_value), round(solver.best_objective_bound))
