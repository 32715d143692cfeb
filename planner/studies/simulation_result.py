"""What a simulation found: figures by rank, the operations' times, and pictures of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.quantum import Quantum
from planner.errors import InputError
from planner.operations import Kind, Order
from planner.schedules.memory_curve import held_by_operation, in_flight, peak_by_rank
from planner.schedules.timeline import Timeline, run_order
from planner.studies.simulation_times import per_rank

if TYPE_CHECKING:
    from planner.report.timeline_picture import TimelinePicture

__all__ = ["RankBytes", "Simulation", "limits_of", "share_of", "title_of"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

_SLACK = 1e-9
"""Sums of shares of activations differ by their rounding."""


@dataclass(frozen=True, eq=False)
class RankBytes:
    """What the ranks of a plan hold beside activations, and how large those are."""

    static: tuple[int, ...]
    """States, workspace and buffers of each rank (P)."""
    activation: tuple[int, ...]
    """Activations of one micro-batch of each stage (S)."""
    budget: tuple[int, ...] | None
    """(P); None: no limit."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """One step of a pipeline, simulated. Times are whole quanta inside, milliseconds outside."""

    schedule: str
    """Name of the schedule; ``order`` for a foreign order."""
    title: str
    order: Order
    timeline: Timeline
    quantum: Quantum
    chunks: int
    """Chunks of the model for each rank, V."""
    group_size: int | None = None
    """Micro-batches of an interleaving group."""
    freed_at_i: float = 0.0
    """Share of an activation freed when I ends, the rest at W."""
    activation_limit: tuple[float, ...] | None = None
    """Micro-batches' activations each rank may hold (P)."""
    weight_versions: tuple[int, ...] = ()
    """Copies of its weights each rank keeps (P)."""
    staleness: tuple[int, ...] = ()
    """Updates between the weights a gradient is taken at and those it is added to (P)."""
    parameter_copies: int = 1
    """Ranks that hold each stage: 2 in two-way schedules."""
    fixed: int = 0
    """What every step of a plan adds after the optimizer, in quanta."""
    period: Fraction | None = None
    """Steady period of an asynchronous schedule, in quanta."""
    bytes_held: RankBytes | None = None
    """Of a plan."""
    notes: tuple[str, ...] = ()

    @property
    def num_ranks(self) -> int:
        """P."""
        return self.order.num_ranks

    @property
    def num_microbatches(self) -> int:
        """M."""
        return self.order.num_microbatches

    # --- times --------------------------------------------------------------------------------

    @property
    def makespan_ms(self) -> float:
        """Largest end of any operation."""
        return self.quantum.ms(self.timeline.makespan)

    @property
    def step_time_ms(self) -> float:
        """Makespan with the tail: gradient reduction, optimizer and what is fixed."""
        return self.quantum.ms(self.timeline.step + self.fixed)

    @property
    def span_ms(self) -> float:
        """Longest time from a rank's first start to its own last end."""
        return self.quantum.ms(self.timeline.span)

    @cached_property
    def waiting_ms(self) -> float:
        """What transfers add to the makespan: the same order with free edges takes less."""
        times = self.timeline.times
        nothing = np.zeros_like(times.edge_forward)
        free = replace(
            times,
            edge_forward=nothing,
            edge_backward=nothing,
            mirrored_forward=None,
            mirrored_backward=None,
        )
        alone = run_order(self.order, free, self.timeline.sends).makespan
        return self.quantum.ms(max(0, self.timeline.makespan - alone))

    @property
    def steady_period_ms(self) -> float | None:
        """Time between micro-batches once an asynchronous pipeline is full; None for others."""
        if self.period is None:
            return None
        return float(self.period) * float(str(self.quantum))

    def _each_ms(self, quanta: I64) -> list[float]:
        return [self.quantum.ms(value) for value in quanta.tolist()]

    @cached_property
    def critical_path(self) -> tuple[str, ...]:
        """Operations that set the makespan, first to last."""
        return tuple(self.order.name(at) for at in self.timeline.critical_path())

    # --- memory -------------------------------------------------------------------------------

    @property
    def release_rule(self) -> str:
        """When an activation leaves ``in_flight``."""
        if not self.order.splits_backward:
            return "freed at B"
        if not self.freed_at_i:
            return "freed at W"
        if self.freed_at_i == 1:
            return "freed at I"
        return f"{100 * self.freed_at_i:.15g} % freed at I, the rest at W"

    @cached_property
    def in_flight(self) -> tuple[int, ...]:
        """Chunk activations each rank holds any of at its peak, under the release rule (P)."""
        return self.in_flight_until_i if self.freed_at_i == 1 else self.in_flight_until_w

    @cached_property
    def in_flight_until_w(self) -> tuple[int, ...]:
        """Chunk activations each rank holds at its peak, kept until B or W (P)."""
        return tuple(in_flight(self.order, Kind.W).tolist())

    @cached_property
    def in_flight_until_i(self) -> tuple[int, ...]:
        """Likewise, kept until B or I (P)."""
        return tuple(in_flight(self.order, Kind.I).tolist())

    @cached_property
    def peak_activation(self) -> tuple[float, ...]:
        """Micro-batches' activations each rank holds at its peak, a chunk counting 1/V (P)."""
        peaks = peak_by_rank(self.order, None, self.freed_at_i) / self.chunks
        return tuple(round(peak, 9) for peak in peaks.tolist())

    @cached_property
    def memory_bytes(self) -> tuple[int, ...] | None:
        """Largest memory of each rank of a plan (P)."""
        if self.bytes_held is None:
            return None
        peaks = peak_by_rank(self.order, self.bytes_held.activation, self.freed_at_i)
        return tuple(
            held + int(peak)
            for held, peak in zip(self.bytes_held.static, np.rint(peaks).tolist(), strict=True)
        )

    @property
    def budget_bytes(self) -> tuple[int, ...]:
        """Memory budget of each rank of a plan (P); empty where there is none."""
        return () if self.bytes_held is None else self.bytes_held.budget or ()

    @cached_property
    def over_limit(self) -> tuple[int, ...]:
        """Ranks that hold more activations than the limit, or more bytes than their budget."""
        over = set()
        if self.activation_limit is not None:
            pairs = zip(self.peak_activation, self.activation_limit, strict=True)
            over |= {rank for rank, (peak, limit) in enumerate(pairs) if peak > limit + _SLACK}
        if self.memory_bytes is not None and self.budget_bytes:
            sizes = zip(self.memory_bytes, self.budget_bytes, strict=True)
            over |= {rank for rank, (size, budget) in enumerate(sizes) if size > budget}
        return tuple(sorted(over))

    @property
    def fits(self) -> bool:
        """Whether no rank exceeds what it may hold."""
        return not self.over_limit

    # --- other forms --------------------------------------------------------------------------

    def to_dict(self, *, operations: bool = False) -> dict[str, Any]:
        """All figures as plain values, ready for JSON.

        Parameters
        ----------
        operations
            Also the start and end of every operation, and what its rank holds meanwhile.
        """
        timeline = self.timeline
        found: dict[str, Any] = {
            "schedule": self.schedule,
            "stages": self.num_ranks,
            "microbatches": self.num_microbatches,
            "chunks": self.chunks,
            "group_size": self.group_size,
            "sends": timeline.sends.value,
            "makespan_ms": self.makespan_ms,
            "step_time_ms": self.step_time_ms,
            "span_ms": self.span_ms,
            "waiting_ms": self.waiting_ms,
            "steady_period_ms": self.steady_period_ms,
            "bubble_fraction": timeline.bubble_fraction,
            "bubble_of_ideal": timeline.bubble_of_ideal,
            "span_bubble": timeline.span_bubble,
            "busy_ms": self._each_ms(timeline.busy),
            "idle_ms": self._each_ms(timeline.idle),
            "release_rule": self.release_rule,
            "in_flight": list(self.in_flight),
            "in_flight_until_i": list(self.in_flight_until_i),
            "in_flight_until_w": list(self.in_flight_until_w),
            "weight_versions": list(self.weight_versions),
            "staleness": list(self.staleness),
            "parameter_copies": self.parameter_copies,
            "freed_at_i": self.freed_at_i,
            "peak_activation": list(self.peak_activation),
            "activation_limit": None if self.activation_limit is None
            else list(self.activation_limit),
            "fits": self.fits,
            "over_limit": list(self.over_limit),
        }  # fmt: skip
        if self.memory_bytes is not None:
            found["memory_bytes"] = list(self.memory_bytes)
            found["budget_bytes"] = list(self.budget_bytes) or None
        found["times_ms"] = self._times()
        found["critical_path"] = list(self.critical_path)
        found["notes"] = list(self.notes)
        found["ranks"] = self.order.rank_lists()
        if operations:
            found["operations"] = self._operations()
        return found

    def to_json(self, *, operations: bool = False) -> str:
        """:meth:`to_dict` as JSON text; same question, same bytes. One line a rank's list."""
        plain = self.to_dict(operations=operations)
        lines = [f"  {json.dumps(key)}: {_compact(value)}" for key, value in plain.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def _times(self) -> dict[str, Any]:
        times = self.timeline.times
        whole = times.input_gradient + times.weight_gradient
        each = {
            "forward": times.forward,
            "backward": whole,
            "wgrad": times.weight_gradient,
            "comm_forward": times.edge_forward,
            "comm_backward": times.edge_backward,
            "reduction": times.reduction,
            "optimizer": times.optimizer,
        }
        found: dict[str, Any] = {
            name: None if values is None else self._each_ms(values) for name, values in each.items()
        }
        found["pair"] = None if times.pair is None else self.quantum.ms(times.pair)
        return found

    def _operations(self) -> list[dict[str, Any]]:
        order, ms = self.order, self.quantum.ms
        held, unit = self.held()
        columns = (
            order.rank.tolist(),
            self.timeline.start.tolist(),
            self.timeline.end.tolist(),
            held.tolist(),
        )
        return [
            {
                "rank": rank,
                "operation": order.name(at),
                "start_ms": ms(start),
                "end_ms": ms(end),
                f"held_{unit.lower()}": round(amount, 9),
            }
            for at, (rank, start, end, amount) in enumerate(zip(*columns, strict=True))
        ]

    def held(self) -> tuple[F64, str]:
        """What each operation's rank holds while it runs (n), and the unit."""
        order = self.order
        if self.bytes_held is None:
            return held_by_operation(order, None, self.freed_at_i) / self.chunks, "activations"
        kept = held_by_operation(order, self.bytes_held.activation, self.freed_at_i)
        static = np.array(self.bytes_held.static, np.float64)[order.rank]
        return (kept + static) / 2**30, "GiB"

    def picture(self) -> TimelinePicture:
        """What the drawings of ``planner.report`` are made from."""
        from planner.report.timeline_picture import TimelinePicture

        held, unit = self.held()
        limits, fixed = self.activation_limit, None
        if self.bytes_held is not None:
            fixed = tuple(size / 2**30 for size in self.bytes_held.static)
            limits = tuple(size / 2**30 for size in self.budget_bytes) or None
        return TimelinePicture(
            title=self.title,
            timeline=self.timeline,
            quantum_ms=float(str(self.quantum)),
            held=held,
            held_unit=unit,
            limits=limits,
            fixed=fixed,
            overhead_ms=self.quantum.ms(self.fixed),
        )


def _compact(value: Any) -> str:
    """JSON with the entries of a list of lists or objects on a line each."""
    nested = isinstance(value, list) and value and isinstance(value[0], list | dict)
    if not nested:
        return json.dumps(value)
    rows = ",\n".join(f"    {json.dumps(entry)}" for entry in value)
    return f"[\n{rows}\n  ]"


# --- what is asked of every simulation -----------------------------------------------------------


def share_of(freed_at_i: float) -> float:
    """``freed_at_i`` as a share.

    Raises
    ------
    InputError
        Not from 0 to 1.
    """
    if isinstance(freed_at_i, bool) or not isinstance(freed_at_i, int | float):
        raise InputError("is no share", file="freed_at_i", value=freed_at_i, expected="0 to 1")
    if not 0 <= freed_at_i <= 1:
        raise InputError("is no share", file="freed_at_i", value=freed_at_i, expected="0 to 1")
    return float(freed_at_i)


def limits_of(given: float | Sequence[float] | None, num_ranks: int) -> tuple[float, ...] | None:
    """Activations each rank may hold, or None.

    Raises
    ------
    InputError
        Another number of limits than 1 or P, or one that is not > 0.
    """
    limits = per_rank("activation_limit", given, num_ranks, unit="activations")
    if limits is not None and min(limits) <= 0:
        raise InputError("is no limit", file="activation_limit", value=0, expected="a number > 0")
    return limits


def title_of(name: str, num_ranks: int, num_microbatches: int, chunks: int | None) -> str:
    """One line that says what is drawn."""
    shape = f"P={num_ranks}, M={num_microbatches}"
    return f"{name}, {shape}" + (f", V={chunks}" if chunks else "")
