"""Simulations that this process makes for ``planner simulate``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.cli.backend import Shown, SimulationQuestion, TextKind
from planner.cli.output import print_view
from planner.specs import Sends
from planner.studies.simulation_texts import Look, SimulationTexts

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["may_color", "simulated_here"]


def simulated_here(question: SimulationQuestion, shown: Shown) -> SimulatedHere:
    """Simulate what is asked."""
    return SimulatedHere(_texts(question), shown)


def may_color() -> bool:
    """Whether timelines may use colours on standard output."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@dataclass(frozen=True)
class SimulatedHere:
    """Simulations and how they are shown."""

    texts: SimulationTexts
    shown: Shown

    @property
    def fits(self) -> bool:
        """Whether no rank exceeds what it may hold."""
        return all(found.fits for found in self.texts.found)

    def text(self, kind: TextKind) -> str:
        """One of the texts."""
        if kind == "svg":
            return self.texts.svg()
        if kind == "trace":
            return self.texts.trace()
        if kind == "csv":
            return self.texts.csv()
        return self.texts.json(kind == "operations")

    def show(self) -> None:
        """Print tables and timelines."""

        def view(width: int) -> RenderableType:
            look = Look(width, self.shown.timeline_width, self.shown.slots, may_color())
            return self.texts.view(look)

        print_view(view)


def _texts(question: SimulationQuestion) -> SimulationTexts:
    from planner.formats.torch_schedule import parse_order
    from planner.studies.comparison import compare_schedules
    from planner.studies.plan_simulation import simulate_plan
    from planner.studies.simulation import simulate_order, simulate_schedule

    limit, share = question.activation_limit, question.freed_at_i
    if question.plan is not None:
        found = simulate_plan(
            question.plan,
            model=question.model,
            cluster=question.cluster,
            training=question.training,
            activation_limit=limit,
            freed_at_i=share,
        )
        return SimulationTexts([found])
    sends = question.sends or Sends.OVERLAPPED
    if question.order is not None:
        found = simulate_order(
            parse_order(*question.order),
            times=question.times,
            activation_limit=limit,
            freed_at_i=share,
            sends=sends,
        )
        return SimulationTexts([found])
    shape = (question.stages, question.microbatches)
    if not question.compared:
        found = simulate_schedule(
            question.schedules[0],
            *shape,
            chunks=question.chunks,
            group_size=question.group_size,
            times=question.times,
            activation_limit=limit,
            freed_at_i=share,
            sends=sends,
            aim=question.aim,
        )
        return SimulationTexts([found])
    several, notes = compare_schedules(
        question.schedules,
        *shape,
        chunks=question.chunks,
        group_size=question.group_size,
        times=question.times,
        activation_limit=limit,
        freed_at_i=share,
        sends=sends,
        aim=question.aim,
    )
    return SimulationTexts(several, compared=True, notes=notes)
