"""Times as a caller gives them (milliseconds, one value or a list) to whole quanta by stage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from planner.cost.quantum import Quantum, choose_quantum
from planner.errors import InputError
from planner.operations import Kind, Order
from planner.schedule_rules import RULES
from planner.schedules.timeline import StageTimes
from planner.schedules.validate import links_of
from planner.specs import Schedule

__all__ = ["Milliseconds", "Placement", "TimeOptions", "per_rank", "stage_times"]

I64 = NDArray[np.int64]

Milliseconds = float | Sequence[float]
"""One value for all, or a list."""

_LONGEST_MS = 1e15
"""30,000 years; more is a slip of the finger."""


@dataclass(frozen=True)
class TimeOptions:
    """What a caller says about times; the defaults are those of ``planner simulate``."""

    forward_ms: Milliseconds | None = None
    backward_ms: Milliseconds | None = None
    wgrad_ms: Milliseconds | None = None
    comm_ms: Milliseconds | None = None
    pair_ms: float | None = None
    reduction_ms: Milliseconds | None = None
    optimizer_ms: Milliseconds | None = None

    @property
    def given(self) -> list[str]:
        """Names of what the caller did say."""
        return [entry.name for entry in fields(self) if getattr(self, entry.name) is not None]


@dataclass(frozen=True, eq=False)
class Placement:
    """Which rank runs each stage (chunk); K classes of micro-batches that are placed alike."""

    num_ranks: int
    home: I64
    """Rank of each stage by class, shape (S, K)."""
    mirrored: NDArray[np.bool_]
    """Whether a class runs a stage on the mirror rank of a two-way schedule (S, K)."""

    @property
    def num_stages(self) -> int:
        """S, chunks of the model."""
        return len(self.home)

    @property
    def chunks(self) -> int:
        """Chunks of the model for each rank, V (rounded up)."""
        return -(-self.num_stages // self.num_ranks)

    @classmethod
    def of_schedule(cls, schedule: Schedule, num_ranks: int, chunks: int) -> Placement:
        """Looped (chunk q on rank q mod P), folded, or stage s on ranks s and P-1-s."""
        rules, p = RULES[schedule], num_ranks
        if rules.two_way:
            ahead = np.arange(p)
            flags = np.stack([np.zeros(p, np.bool_), np.ones(p, np.bool_)], axis=1)
            return cls(p, np.stack([ahead, ahead[::-1]], axis=1), flags)
        stage = np.arange(p * chunks)
        home = np.where(stage < p, stage, 2 * p - 1 - stage) if rules.folded else stage % p
        return cls(p, home[:, None], np.zeros((len(stage), 1), np.bool_))

    @classmethod
    def of_order(cls, order: Order) -> Placement:
        """Where an order's forwards run; one class a micro-batch.

        Raises
        ------
        OrderError
            The order is not valid.
        """
        links = links_of(order)
        home = np.zeros((order.num_stages, order.num_microbatches), np.int64)
        mirrored = np.zeros(home.shape, np.bool_)
        ahead = np.flatnonzero(order.kind == Kind.F)
        cell = (order.stage[ahead], order.microbatch[ahead])
        home[cell] = order.rank[ahead]
        mirrored[cell] = links.mirrored[ahead]
        return cls(order.num_ranks, home, mirrored)


def stage_times(
    options: TimeOptions, placement: Placement, num_microbatches: int
) -> tuple[StageTimes, Quantum]:
    """The times of every stage and border in quanta, exact for decimals of up to 12 digits.

    F = 1, B = 2 and W = B / 2 where nothing is said; B is the whole backward, I + W. A list of
    ``comm_ms`` has one entry an edge between neighbouring ranks (P-1), or one a border of two
    chunks (P V - 1). Of the former, borders between ranks that are no neighbours (the wrap edge
    of interleaved schedules) cost the largest, and those on one rank nothing.

    Raises
    ------
    InputError
        A time that is negative or no number, a list of the wrong length, or W above B; the
        message names the entry.
    """
    stages, ranks = placement.num_stages, placement.num_ranks
    one_each = f"1 or {stages}, one a chunk in chunk order" if stages > ranks else None
    expected = one_each or f"1 or {stages}, one a stage"
    forward = _values("forward_ms", options.forward_ms, 1.0, stages, expected)
    backward = _values("backward_ms", options.backward_ms, 2.0, stages, expected)
    if options.wgrad_ms is None:
        weight = [_half(value) for value in backward]
    else:
        weight = _values("wgrad_ms", options.wgrad_ms, 0.0, stages, expected)
    for stage, (part, whole) in enumerate(zip(weight, backward, strict=True)):
        if part > whole:
            raise InputError(
                f"is more than the backward of stage {stage}, {whole:.15g} ms, of which it is "
                "a part",
                file=_entry("wgrad_ms", stage, options.wgrad_ms),
                value=part,
                expected="W of backward = I + W",
            )
    comm = _comm(options.comm_ms, stages, ranks)
    pair = None if options.pair_ms is None else _number("pair_ms", options.pair_ms)
    reduction = per_rank("reduction_ms", options.reduction_ms, ranks)
    optimizer = per_rank("optimizer_ms", options.optimizer_ms, ranks)
    tail = [*(reduction or ()), *(optimizer or ())]
    edge_sum = sum(comm) if len(comm) == stages - 1 else max(comm, default=0.0) * (stages - 1)
    quantum = choose_quantum(
        [*forward, *backward, *weight, *comm, *tail, *([] if pair is None else [pair])],
        [],
        total_ms=sum(forward) + sum(backward) + 2 * edge_sum + (pair or 0.0) * stages
        + max(reduction or (0.0,)) + max(optimizer or (0.0,)),
        repeats=num_microbatches + 1,
    )  # fmt: skip
    weights = quantum.array(weight)
    edges = _edges(quantum.array(comm), placement)
    return (
        StageTimes(
            forward=quantum.array(forward),
            input_gradient=quantum.array(backward) - weights,
            weight_gradient=weights,
            edge_forward=edges[0],
            edge_backward=edges[1],
            mirrored_forward=edges[2],
            mirrored_backward=edges[3],
            pair=None if pair is None else quantum.quanta(pair),
            reduction=None if reduction is None else quantum.array(reduction),
            optimizer=None if optimizer is None else quantum.array(optimizer),
        ),
        quantum,
    )


def per_rank(
    name: str, given: Milliseconds | None, num_ranks: int, *, unit: str = "milliseconds"
) -> tuple[float, ...] | None:
    """One value or one a rank, as P numbers >= 0; None stays None.

    Raises
    ------
    InputError
        Another number of values, or one that is negative or no number.
    """
    if given is None:
        return None
    expected = f"1 or {num_ranks}, one a rank"
    return tuple(_values(name, given, 0.0, num_ranks, expected, unit))


def _half(value: float) -> float:
    return float(Decimal(f"{value:.15g}") / 2)


def _entry(name: str, index: int, given: Milliseconds | None) -> str:
    single = given is None or isinstance(given, int | float) or len(given) == 1
    return name if single else f"{name} entry {index}"


def _number(name: str, value: object, unit: str = "milliseconds") -> float:
    """One number >= 0."""
    expected = f"{unit} >= 0"
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise InputError("is no number", file=name, value=value, expected=expected)
    number = float(value)
    if not math.isfinite(number):
        raise InputError("is not finite", file=name, value=value, expected=expected)
    if number < 0:
        raise InputError("is negative", file=name, value=f"{number:.15g}", expected=expected)
    if number > _LONGEST_MS:
        raise InputError("is too large", file=name, value=value, expected=f"at most {_LONGEST_MS}")
    return number


def _values(
    name: str,
    given: Milliseconds | None,
    default: float,
    count: int,
    expected: str,
    unit: str = "milliseconds",
) -> list[float]:
    """One value for each of ``count``."""
    if given is None:
        return [default] * count
    if isinstance(given, int | float | np.number):
        return [_number(name, given, unit)] * count
    if isinstance(given, str):
        raise InputError("is no number", file=name, value=given, expected=f"{unit} >= 0")
    entries = list(given)
    values = [
        _number(_entry(name, index, given), value, unit) for index, value in enumerate(entries)
    ]
    if len(values) not in (1, count):
        raise InputError(f"has {_counted(len(values))}", file=name, expected=expected)
    return values * count if len(values) == 1 else values


def _counted(number: int) -> str:
    return f"{number} value" if number == 1 else f"{number} values"


# --- edges -------------------------------------------------------------------------------------


def _comm(given: Milliseconds | None, stages: int, ranks: int) -> list[float]:
    """P-1 costs of the edges between neighbouring ranks, or S-1 of the borders of chunks."""
    if given is None or isinstance(given, int | float | np.number):
        return [0.0 if given is None else _number("comm_ms", given)] * (ranks - 1)
    length = len(given)
    if length == stages - 1 and length > ranks - 1:
        return _values("comm_ms", given, 0.0, length, "")
    expected = f"1 or {ranks - 1}, one an edge between neighbouring ranks"
    if stages > ranks:
        expected += f"; or {stages - 1}, one a border of two chunks"
    if ranks == 1:
        expected = "1: there is no edge with one rank"
    values = _values("comm_ms", given, 0.0, max(ranks - 1, 1), expected)
    return values[: ranks - 1]


def _edges(costs: I64, placement: Placement) -> tuple[I64, I64, I64 | None, I64 | None]:
    """Forward and backward cost of every border of two stages, and of the mirrored ones."""
    before, after = placement.home[:-1], placement.home[1:]
    away = np.abs(after - before)
    if len(costs) == len(before) and len(costs) > placement.num_ranks - 1:
        crossing = np.where(away == 0, 0, costs[:, None])
    else:
        # A rank without neighbours crosses nothing.
        by_rank = costs if len(costs) else np.zeros(1, np.int64)
        near = by_rank[np.minimum(np.minimum(before, after), len(by_rank) - 1)]
        crossing = np.where(away == 0, 0, np.where(away == 1, near, by_rank.max()))
    # F of the later stage and B of the earlier one cross a border; either may be the mirrored one.
    ahead, back = placement.mirrored[1:], placement.mirrored[:-1]
    plain = (_largest(crossing, ~ahead), _largest(crossing, ~back))
    if not placement.mirrored.any():
        return (*plain, None, None)
    return (*plain, _largest(crossing, ahead), _largest(crossing, back))


def _largest(crossing: I64, where: NDArray[np.bool_]) -> I64:
    """By border, the largest cost of the classes that count; equal in all but odd orders."""
    largest: I64 = np.where(where, crossing, 0).max(axis=1, initial=0)
    return largest
