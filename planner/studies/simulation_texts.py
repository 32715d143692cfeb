"""Simulations as texts: pictures, traces, orders, JSON, and what a terminal shows."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.studies.simulation_result import Simulation

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Look", "SimulationTexts"]


@dataclass(frozen=True)
class Look:
    """How the text for a terminal looks."""

    width: int = 132
    """Characters of a line."""
    timeline_width: int | None = None
    """Of a line of the timeline; None: the same."""
    slots: bool = False
    """One cell an operation, not true to scale."""
    color: bool = False


@dataclass(frozen=True)
class SimulationTexts:
    """One simulation, or several that are compared, and its texts.

    Examples
    --------
    >>> from planner.studies.simulation import simulate
    >>> SimulationTexts([simulate("gpipe", stages=2, microbatches=1)]).csv()
    '0F0,0B0\\r\\n1F0,1B0\\r\\n'
    """

    found: Sequence[Simulation]
    compared: bool = False
    notes: tuple[str, ...] = ()
    """Of the comparison."""

    def svg(self) -> str:
        """The timelines, on one scale."""
        from planner.report.timeline_svg import timeline_svg

        return timeline_svg([found.picture() for found in self.found])

    def trace(self) -> str:
        """Chrome trace JSON of the first."""
        from planner.report.chrome_trace import chrome_trace

        return json.dumps(chrome_trace(self.found[0].picture())) + "\n"

    def csv(self) -> str:
        """The order of the first as torch's schedule CSV."""
        from planner.formats.torch_schedule import write_torch_csv

        return write_torch_csv(self.found[0].order)

    def json(self, operations: bool) -> str:
        """All figures, with or without every operation."""
        documents = [found.to_json(operations=operations) for found in self.found]
        if not self.compared:
            return documents[0]
        entries = ",\n".join(document.rstrip("\n") for document in documents)
        notes = json.dumps(list(self.notes))
        return f'{{\n"comparison": [\n{entries}\n],\n"notes": {notes}\n}}\n'

    def view(self, look: Look) -> RenderableType:
        """What a terminal shows."""
        from planner.studies.simulation_view import comparison_view, simulation_view

        drawn = look.timeline_width or look.width
        if self.compared:
            return comparison_view(
                self.found,
                self.notes,
                look.width,
                timeline_width=drawn,
                slots=look.slots,
                color=look.color,
            )
        return simulation_view(
            self.found[0], look.width, timeline_width=drawn, slots=look.slots, color=look.color
        )

    def text(self, look: Look) -> str:
        """What a terminal shows, as text with its colours."""
        from rich.console import Console

        console = Console(
            highlight=False,
            width=look.width,
            file=io.StringIO(),
            color_system="256" if look.color else None,
            force_terminal=look.color,
        )
        with console.capture() as captured:
            console.print(self.view(look), crop=False)
        return "\n".join(line.rstrip() for line in captured.get().split("\n"))
