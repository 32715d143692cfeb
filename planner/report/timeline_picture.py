"""What a picture of a timeline shows, and what SVG, terminal and trace all need to know of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.operations import Kind
from planner.schedules.timeline import Timeline
from planner.schedules.validate import links_of
from planner.units import format_ms

__all__ = [
    "KIND_WORDS",
    "TailSpan",
    "TimelinePicture",
    "caption_of",
    "chunk_words",
    "critical_runs",
    "exceeds",
    "format_held",
    "held_words",
    "idle_shares",
    "nice_ticks",
    "sends_of",
    "slots_of",
    "tail_of",
    "time_scale",
]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

KIND_WORDS = ("forward", "backward", "backward for the input", "backward for the weights")

_TIME_UNITS = (("s", 1e3, 1e3), ("ms", 1.0, 1.0), ("us", 1e-3, 1e-3), ("ns", 1e-6, 0.0))


@dataclass(frozen=True, eq=False)
class TimelinePicture:
    """A timeline with the units a reader wants; n operations on P ranks.

    Raises
    ------
    InputError
        Shapes that do not match the timeline, a quantum that is no positive time, or amounts
        that are no numbers >= 0.
    """

    title: str
    """As ``1F1B, P=4, M=8``."""
    timeline: Timeline
    quantum_ms: float
    """Milliseconds of one time unit of the timeline."""
    held: F64
    """Amount held on the rank while each operation runs, shape (n,)."""
    held_unit: str
    """Of ``held``, ``limits`` and ``fixed``: ``activations`` or ``GiB``."""
    limits: tuple[float, ...] | None = None
    """What each rank may hold (P); infinite: anything."""
    fixed: tuple[float, ...] | None = None
    """What each rank holds before its first operation, parameters say (P); None: nothing."""
    overhead_ms: float = 0.0
    """What a step adds after the optimizer; said in the caption, not drawn."""

    def __post_init__(self) -> None:
        order = self.timeline.order
        if not (math.isfinite(self.quantum_ms) and self.quantum_ms > 0):
            raise InputError(
                "is no time quantum", value=self.quantum_ms, expected="milliseconds > 0"
            )
        if self.held.shape != (order.num_operations,):
            raise InputError(
                "amounts held do not match the order",
                value=self.held.shape,
                expected=f"{order.num_operations}, one an operation",
            )
        if not bool(np.isfinite(self.held).all()) or bool((self.held < 0).any()):
            raise InputError("an amount held is no number >= 0")
        for name, values in (("limits", self.limits), ("fixed", self.fixed)):
            if values is None:
                continue
            if len(values) != order.num_ranks:
                raise InputError(
                    f"{name} do not match the order",
                    value=len(values),
                    expected=f"{order.num_ranks}, one a rank",
                )
            worst = [v for v in values if not v >= 0 or (name == "fixed" and math.isinf(v))]
            if worst:
                raise InputError(f"{name}: is no amount", value=worst[0], expected="a number >= 0")

    @property
    def total(self) -> int:
        """Quanta from the start to the end of the tail, at least 1."""
        return max(self.timeline.step, self.timeline.makespan, 1)

    @property
    def total_ms(self) -> float:
        """The same in milliseconds."""
        return self.total * self.quantum_ms

    @cached_property
    def two_way(self) -> bool:
        """Whether micro-batches enter at both ends of the pipeline."""
        mirrored = links_of(self.timeline.order).mirrored
        return bool(mirrored.any()) and not bool(mirrored.all())

    @cached_property
    def chunk(self) -> I64:
        """Which of its rank's chunks an operation belongs to, counted in model order (n,).

        Of two-way schedules: 0 for micro-batches that enter at the first rank, 1 at the last.
        """
        order = self.timeline.order
        if self.two_way:
            return links_of(order).mirrored.astype(np.int64)
        # Distinct (rank, stage) cells in order; less the first cell of the rank.
        cells, place = np.unique(order.rank * order.num_stages + order.stage, return_inverse=True)
        first = np.searchsorted(cells, np.arange(order.num_ranks) * order.num_stages)
        chunk: I64 = place.astype(np.int64) - first[order.rank]
        return chunk

    @cached_property
    def num_chunks(self) -> int:
        """Largest number of chunks (or directions) a rank works on."""
        return int(self.chunk.max()) + 1

    @cached_property
    def peak(self) -> F64:
        """Largest amount each rank holds, shape (P,)."""
        order = self.timeline.order
        peak = np.zeros(order.num_ranks) if self.fixed is None else np.array(self.fixed, float)
        np.maximum.at(peak, order.rank, self.held)
        return peak

    @cached_property
    def held_after(self) -> F64:
        """Amount held between the end of an operation and the next start of its rank (n,).

        The last operation of a rank leaves what is ``fixed``.
        """
        order = self.timeline.order
        first, second = slots_of(self.timeline)
        base = self.held[first] - self._taken[first]
        paired = second > first
        base[paired] -= self._taken[second[paired]]
        fixed = np.zeros(order.num_ranks) if self.fixed is None else np.array(self.fixed, float)
        rank = order.rank[first]
        after = np.append(base[1:], 0.0)
        last = np.append(rank[1:] != rank[:-1], True)
        after[last] = fixed[rank[last]]
        after = np.clip(after, np.minimum(fixed[rank], self.held[first]), self.held[first])
        result = np.empty(order.num_operations)
        result[second] = after
        result[first] = after
        return result

    @cached_property
    def _taken(self) -> F64:
        """What each operation takes when it starts: the size of its stage at F (n,)."""
        order = self.timeline.order
        sizes = np.zeros((order.num_ranks, order.num_stages))
        forwards = np.flatnonzero(order.kind == Kind.F)
        cells = order.rank[forwards] * order.num_stages + order.stage[forwards]
        firsts = np.sort(forwards[np.unique(cells, return_index=True)[1]])
        for at in firsts.tolist():
            rank, stage = int(order.rank[at]), int(order.stage[at])
            sizes[rank, stage] = self._size_at(at, sizes[rank])
        return np.where(order.kind == Kind.F, sizes[order.rank, order.stage], 0.0)

    def _size_at(self, at: int, known: F64) -> float:
        """Size of a stage, from the first F that runs it: what is held then, less the base."""
        order, held = self.timeline.order, self.held
        joined = order.joined
        begin = int(order.rank_start[order.rank[at]])
        slot = at - 1 if joined is not None and at > begin and joined[at - 1] else at
        partner = slot + 1 if slot < at else at + 1 if joined is not None and joined[at] else None
        beside = 0.0
        if partner is not None:
            other = slot if slot < at else partner
            if order.kind[other] == Kind.F:
                beside = float(known[order.stage[other]])
        before = slot - 1
        if before < begin:
            fixed = 0.0 if self.fixed is None else self.fixed[int(order.rank[at])]
            return max(float(held[at]) - fixed - beside, 0.0)
        alone = joined is None or not (joined[before] or (before > begin and joined[before - 1]))
        kind = int(order.kind[before])
        if alone and kind == Kind.F:
            return max(float(held[at] - held[before]) - beside, 0.0)
        if alone and kind == Kind.B:
            base = float(held[before] - known[order.stage[before]])
            return max(float(held[at]) - base - beside, 0.0)
        # What I, W or a pair has freed is not known here: take the stage as large as the others.
        return float(known.max())


def slots_of(timeline: Timeline) -> tuple[I64, I64]:
    """First and last operation of every slot: the two of an overlapped pair share one."""
    order = timeline.order
    numbers = np.arange(order.num_operations)
    if order.joined is None:
        return numbers, numbers
    second = np.concatenate(([False], order.joined[:-1]))
    first: I64 = numbers[~second]
    return first, first + order.joined[first]


def sends_of(timeline: Timeline) -> I64:
    """How long the rank is busy sending after each slot; those of a pair run side by side."""
    first, second = slots_of(timeline)
    longest: I64 = np.maximum(timeline.hold[first], timeline.hold[second])
    return longest


@dataclass(frozen=True)
class TailSpan:
    """Gradient reduction or optimizer step of one rank, in quanta."""

    rank: int
    name: str
    start: int
    end: int


def tail_of(timeline: Timeline) -> list[TailSpan]:
    """What follows each rank's last operation; the optimizer waits for every reduction."""
    spans = []
    ends = timeline.finish
    reduction, optimizer = timeline.times.reduction, timeline.times.optimizer
    if reduction is not None:
        for rank, (begin, cost) in enumerate(zip(ends.tolist(), reduction.tolist(), strict=True)):
            if cost:
                spans.append(TailSpan(rank, "gradient reduction", begin, begin + cost))
        ends = ends + reduction
    if optimizer is not None:
        begin = int(ends.max())
        for rank, cost in enumerate(optimizer.tolist()):
            if cost:
                spans.append(TailSpan(rank, "optimizer", begin, begin + cost))
    return spans


def critical_runs(timeline: Timeline) -> list[tuple[int, int]]:
    """The critical path as runs on one rank: (first operation, last operation) of each.

    A run has no gap, so it is drawn as one outline; the next run waits for its end on another
    rank.
    """
    runs: list[tuple[int, int]] = []
    ranks = timeline.order.rank
    for at in timeline.critical_path():
        if runs and ranks[runs[-1][1]] == ranks[at]:
            runs[-1] = (runs[-1][0], at)
        else:
            runs.append((at, at))
    return runs


def idle_shares(timeline: Timeline) -> list[float]:
    """Idle share of the makespan of each rank, 0 to 1."""
    return [float(idle) / max(timeline.makespan, 1) for idle in timeline.idle.tolist()]


def time_scale(longest_ms: float) -> tuple[str, float]:
    """Unit of an axis and its milliseconds.

    Examples
    --------
    >>> time_scale(33.0), time_scale(0.02)
    (('ms', 1.0), ('us', 0.001))
    """
    return next((unit, ms) for unit, ms, least in _TIME_UNITS if longest_ms >= least)


def nice_ticks(longest: float, most: int) -> list[tuple[float, str]]:
    """Round values from 0 to ``longest``, at most ``most`` (>= 4) of them, with labels.

    Examples
    --------
    >>> [label for _, label in nice_ticks(33.0, 8)]
    ['0', '5', '10', '15', '20', '25', '30']
    >>> [label for _, label in nice_ticks(0.33, 5)]
    ['0.0', '0.1', '0.2', '0.3']
    """
    if longest <= 0:
        return [(0.0, "0")]
    exponent = math.floor(math.log10(longest / max(most, 1))) - 1
    while True:
        for factor in (1, 2, 5):
            step = factor * 10.0**exponent
            if longest / step + 1 <= max(most, 4):
                count = math.floor(longest / step * (1 + 1e-9))
                decimals = max(-exponent, 0)
                return [(i * step, f"{i * step:.{decimals}f}") for i in range(count + 1)]
        exponent += 1


def format_held(amount: float) -> str:
    """An amount of activations or GiB, without needless zeros.

    Examples
    --------
    >>> format_held(4.0), format_held(2.5), format_held(71.5234), format_held(1234.5678)
    ('4', '2.5', '71.52', '1234.6')
    """
    if math.isinf(amount):
        return "any"
    text = f"{amount:.{1 if amount >= 100 else 2}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def exceeds(amount: float, limit: float) -> bool:
    """Whether an amount is above a limit by more than rounding."""
    return amount > limit * (1 + 1e-9)


def held_words(amount: float, unit: str) -> str:
    """An amount with its unit in the right number."""
    text = format_held(amount)
    return f"{text} {unit[:-1] if text == '1' and unit.endswith('s') else unit}"


def chunk_words(picture: TimelinePicture) -> list[str]:
    """What each chunk shade means; empty where there is one."""
    if picture.num_chunks == 1:
        return []
    if picture.two_way:
        return ["enters at the first rank", "enters at the last rank"]
    return [f"chunk {chunk}" for chunk in range(picture.num_chunks)]


def caption_of(picture: TimelinePicture) -> list[str]:
    """Makespan, bubble, span, peak and tail, a phrase each."""
    timeline = picture.timeline
    worst = int(picture.peak.argmax())
    phrases = [
        f"makespan {format_ms(timeline.makespan * picture.quantum_ms)}",
        f"bubble {100 * timeline.bubble_fraction:.1f} % of it "
        f"({100 * timeline.bubble_of_ideal:.1f} % of ideal)",
        f"span {format_ms(timeline.span * picture.quantum_ms)} "
        f"(bubble {100 * timeline.span_bubble:.1f} %)",
        f"peak {held_words(float(picture.peak[worst]), picture.held_unit)} on rank {worst}",
    ]
    if picture.limits is not None:
        over = [r for r, most in enumerate(picture.limits) if exceeds(float(picture.peak[r]), most)]
        if over:
            ranks = ", ".join(map(str, over[:4])) + (", ..." if len(over) > 4 else "")
            phrases.append(f"over the limit on rank{'s' if len(over) > 1 else ''} {ranks}")
    if timeline.step > timeline.makespan:
        parts = {span.name for span in tail_of(timeline)}
        tail = " and ".join(name for name in ("gradient reduction", "optimizer") if name in parts)
        if picture.overhead_ms:
            tail += " and fixed overhead"
        step_ms = timeline.step * picture.quantum_ms + picture.overhead_ms
        phrases.append(f"step {format_ms(step_ms)} with {tail}")
    return phrases
