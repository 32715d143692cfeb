"""What a search holds while it runs: the best value, the best bound, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.plans import Layout

__all__ = ["Incumbent", "Reporter", "Watcher"]


@dataclass(frozen=True)
class Incumbent:
    """A state of a search; from one to the next the value never rises and the bound never falls.

    Both are of the objective: milliseconds of a step, of a bottleneck, or of GPU time (a step's
    on all its GPUs) where cost is the objective.
    """

    value_ms: float | None
    """Of the best plan held; None before the first."""
    bound_ms: float | None
    """No plan is below it, as far as is proved; None while nothing is."""
    layout: Layout | None
    """Of the best plan held."""
    layouts_done: int
    """Layouts that are known not to beat that plan, or not to fit."""
    layouts_total: int

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, as a plan's; None while either is unknown."""
        if self.value_ms is None or self.bound_ms is None:
            return None
        return (self.value_ms - self.bound_ms) / self.value_ms if self.value_ms else 0.0


Watcher = Callable[[Incumbent], None]


class Reporter:
    """Tells a watcher each time the value or the bound is better than before."""

    def __init__(self, watcher: Watcher, layouts_total: int) -> None:
        self.watcher = watcher
        self.last = Incumbent(None, None, None, 0, layouts_total)

    def tell(
        self,
        value_ms: float | None,
        bound_ms: float | None,
        layout: Layout | None,
        layouts_done: int,
    ) -> None:
        """Pass a state on where it is news."""
        last = self.last
        if value_ms is None or (last.value_ms is not None and value_ms >= last.value_ms):
            value_ms, layout = last.value_ms, last.layout
        if bound_ms is None or (last.bound_ms is not None and bound_ms <= last.bound_ms):
            bound_ms = last.bound_ms
        if value_ms is not None and bound_ms is not None:
            bound_ms = min(bound_ms, value_ms)
        if (value_ms, bound_ms) != (last.value_ms, last.bound_ms):
            done = max(layouts_done, last.layouts_done)
            self.last = Incumbent(value_ms, bound_ms, layout, done, last.layouts_total)
            self.watcher(self.last)
