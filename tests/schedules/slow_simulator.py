"""A slow simulator of rank lists: events in time order on a heap, one operation at a time.

It reads the grammar, not :class:`planner.operations.Order`, and shares no code with the product.
A rank starts its next cell once it is free and all inputs have arrived; what it sends arrives an
edge later. A blocking send keeps the rank busy until it has arrived; the two sends of an
overlapped pair run side by side.
"""

from __future__ import annotations

import heapq
import itertools
import re
from dataclasses import dataclass, field

Word = tuple[int, str, int]
"""Stage, kind, micro-batch."""


class DeadlockError(Exception):
    """No rank can go on; ``waiting`` has the cell each unfinished rank stands at."""

    def __init__(self, waiting: dict[int, str]):
        super().__init__(str(waiting))
        self.waiting = waiting


@dataclass
class Costs:
    """Whole numbers by stage, edges by border of two stages."""

    forward: list[int]
    input_gradient: list[int]
    weight_gradient: list[int]
    edge_forward: list[int]
    edge_backward: list[int]
    mirrored_forward: list[int] | None = None
    mirrored_backward: list[int] | None = None
    pair: int | None = None


@dataclass
class Run:
    """What happened: (start, end) of each word, when each rank was free of all, time it worked."""

    span: dict[str, tuple[int, int]] = field(default_factory=dict)
    finish: list[int] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)

    @property
    def makespan(self) -> int:
        return max(self.finish)


def parse(cell: str) -> list[Word]:
    """The one or two operations of a cell."""
    found = re.findall(r"(\d+)([FBIW])(\d+)", cell)
    return [(int(stage), kind, int(microbatch)) for stage, kind, microbatch in found]


def simulate(lists: list[list[str]], costs: Costs, blocking: bool = False) -> Run:
    """Run complete lists; raises :class:`DeadlockError`."""
    return _Simulation(lists, costs, blocking).run()


class _Simulation:
    def __init__(self, lists: list[list[str]], costs: Costs, blocking: bool):
        self.cells = [[parse(cell) for cell in cells] for cells in lists]
        self.costs, self.blocking = costs, blocking
        self.stages = len(costs.forward)
        self.home = {w: r for r, cells in enumerate(self.cells) for cell in cells for w in cell}
        self.position = [0] * len(lists)
        self.free = [False] * len(lists)
        self.ended: set[Word] = set()
        self.arrived: set[Word] = set()  # results that the stage that reads them has
        self.events: list[tuple[int, int, str, object]] = []
        self.ticket = itertools.count()
        self.result = Run(finish=[0] * len(lists), busy=[0] * len(lists))

    def push(self, time: int, what: str, about: object) -> None:
        heapq.heappush(self.events, (time, next(self.ticket), what, about))

    def run(self) -> Run:
        for rank in range(len(self.cells)):
            self.push(0, "free", rank)
        while self.events:
            now, _, what, about = heapq.heappop(self.events)
            if what == "free":
                self.free[about] = True
                self.result.finish[about] = now
            elif what == "end":
                self.end(now, about)
            else:
                self.arrived.add(about)
            for rank in range(len(self.cells)):
                self.try_next(now, rank)
        waiting = {
            rank: " ".join(f"{s}{k}{m}" for s, k, m in cells[self.position[rank]])
            for rank, cells in enumerate(self.cells)
            if self.position[rank] < len(cells)
        }
        if waiting:
            raise DeadlockError(waiting)
        return self.result

    def try_next(self, now: int, rank: int) -> None:
        at = self.position[rank]
        if not self.free[rank] or at == len(self.cells[rank]):
            return
        cell = self.cells[rank][at]
        if all(self.has_inputs(word) for word in cell):
            self.free[rank] = False
            self.position[rank] += 1
            length = sum(self.length(word) for word in cell)
            if len(cell) == 2 and self.costs.pair is not None:
                length = self.costs.pair
            for stage, kind, microbatch in cell:
                self.result.span[f"{stage}{kind}{microbatch}"] = (now, now + length)
            self.result.busy[rank] += length
            self.push(now + length, "end", rank)

    def end(self, now: int, rank: int) -> None:
        busy_until = now
        for word in self.cells[rank][self.position[rank] - 1]:
            self.ended.add(word)
            reader = self.reader(word)
            if reader is None or self.home[reader] == rank:
                self.arrived.add(word)
                continue
            arrival = now + self.edge(reader)
            self.push(arrival, "arrives", word)
            if self.blocking:
                busy_until = max(busy_until, arrival)
        self.result.busy[rank] += busy_until - now
        self.push(busy_until, "free", rank)

    def backward(self, stage: int, microbatch: int) -> Word:
        whole = (stage, "B", microbatch)
        return whole if whole in self.home else (stage, "I", microbatch)

    def has_inputs(self, word: Word) -> bool:
        stage, kind, microbatch = word
        if kind == "F":
            return stage == 0 or (stage - 1, "F", microbatch) in self.arrived
        if kind == "W":
            return (stage, "I", microbatch) in self.ended
        if stage == self.stages - 1:
            return (stage, "F", microbatch) in self.ended
        return self.backward(stage + 1, microbatch) in self.arrived

    def reader(self, word: Word) -> Word | None:
        """The operation on another stage that reads this one's result."""
        stage, kind, microbatch = word
        if kind == "F" and stage < self.stages - 1:
            return (stage + 1, "F", microbatch)
        if kind in "BI" and stage:
            return self.backward(stage - 1, microbatch)
        return None

    def length(self, word: Word) -> int:
        stage, kind, _ = word
        whole = self.costs.input_gradient[stage] + self.costs.weight_gradient[stage]
        return {
            "F": self.costs.forward[stage],
            "B": whole,
            "I": self.costs.input_gradient[stage],
            "W": self.costs.weight_gradient[stage],
        }[kind]

    def edge(self, reader: Word) -> int:
        stage, kind, _ = reader
        rank, ranks = self.home[reader], len(self.cells)
        mirrored = self.stages == ranks and rank != stage and rank == ranks - 1 - stage
        if kind == "F":
            table = self.costs.mirrored_forward if mirrored else None
            return (table or self.costs.edge_forward)[stage - 1]
        table = self.costs.mirrored_backward if mirrored else None
        return (table or self.costs.edge_backward)[stage]
