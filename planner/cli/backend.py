"""Who computes what the commands ask: this process, or a server.

Commands read their files and print their answers here, whoever computes: they ask `backend`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from planner.check import Verification
    from planner.plans import Explanation, Plan
    from planner.specs import Cluster, Model, Schedule, Sends, Training
    from planner.studies.simulation_times import TimeOptions

__all__ = [
    "Backend",
    "CatalogRow",
    "LocalBackend",
    "OrderText",
    "Shown",
    "Simulated",
    "SimulationQuestion",
    "TextKind",
    "backend",
    "use_backend",
]

TextKind = Literal["svg", "trace", "csv", "json", "operations", "terminal"]


class CatalogRow(NamedTuple):
    """An entry of the catalog in a list."""

    name: str
    description: str


class OrderText(NamedTuple):
    """The text of a foreign order, and what errors are to call it."""

    text: str
    file: str


@dataclass(frozen=True)
class SimulationQuestion:
    """What is to be simulated: a plan, an order, a schedule or several."""

    schedules: tuple[Schedule, ...] = ()
    compared: bool = False
    plan: Plan | None = None
    order: OrderText | None = None
    stages: int = 0
    microbatches: int = 0
    chunks: int | None = None
    group_size: int | None = None
    times: TimeOptions | None = None
    sends: Sends | None = None
    aim: Literal["span", "makespan"] = "span"
    activation_limit: float | Sequence[float] | None = None
    freed_at_i: float = 0.0
    model: str | None = None
    cluster: str | None = None
    training: Training | None = None


@dataclass(frozen=True)
class Shown:
    """How the terminal's text is to look."""

    slots: bool = False
    timeline_width: int | None = None


class Simulated(Protocol):
    """The answer to a `SimulationQuestion`."""

    @property
    def fits(self) -> bool:
        """Whether no rank exceeds what it may hold."""

    def text(self, kind: TextKind) -> str:
        """One of the texts that were asked for, except the terminal's."""

    def show(self) -> None:
        """Print the terminal's text."""


class Backend(Protocol):
    """The verbs of the library as the commands ask for them."""

    def plan(self, model: Model, cluster: Cluster, **options: Any) -> Plan:
        """As ``planner.plan``."""

    def partition(
        self, model: Model, stages: int, microbatches: int, *, cluster: str | None, **options: Any
    ) -> Plan:
        """As ``planner.partition``."""

    def evaluate(
        self, plan: Plan, *, model: str | None, cluster: str | None, training: Training | None
    ) -> Verification:
        """As ``planner.evaluate``."""

    def explain(
        self, plan: Plan, *, model: str | None, cluster: str | None, training: Training | None
    ) -> Explanation:
        """As ``planner.explain``."""

    def simulate(
        self, question: SimulationQuestion, wanted: Sequence[TextKind], shown: Shown
    ) -> Simulated:
        """Simulate, and make the texts that are wanted."""

    def catalog(self) -> Mapping[str, Sequence[CatalogRow]]:
        """Entries of the catalog by their kind: models, clusters, devices."""

    def catalog_text(self, name: str) -> str:
        """The file of an entry (NotInCatalogError where there is none)."""

    def catalog_json(self, name: str) -> str:
        """An entry as JSON (NotInCatalogError where there is none)."""


class LocalBackend:
    """This process computes."""

    def plan(self, model: Model, cluster: Cluster, **options: Any) -> Plan:
        """As ``planner.plan``."""
        from planner import api

        return api.plan(model, cluster, **options)

    def partition(
        self, model: Model, stages: int, microbatches: int, *, cluster: str | None, **options: Any
    ) -> Plan:
        """As ``planner.partition``."""
        from planner import api

        return api.partition(model, stages, microbatches, cluster=cluster, **options)

    def evaluate(
        self, plan: Plan, *, model: str | None, cluster: str | None, training: Training | None
    ) -> Verification:
        """As ``planner.evaluate``."""
        from planner import api

        return api.evaluate(plan, model=model, cluster=cluster, training=training)

    def explain(
        self, plan: Plan, *, model: str | None, cluster: str | None, training: Training | None
    ) -> Explanation:
        """As ``planner.explain``."""
        from planner import api

        return api.explain(plan, model=model, cluster=cluster, training=training)

    def simulate(
        self, question: SimulationQuestion, wanted: Sequence[TextKind], shown: Shown
    ) -> Simulated:
        """Simulate; texts are made when they are asked for."""
        from planner.cli.simulated import simulated_here

        return simulated_here(question, shown)

    def catalog(self) -> Mapping[str, Sequence[CatalogRow]]:
        """What comes with this planner."""
        from planner.formats import catalog

        listed = {
            "models": catalog.list_models(),
            "clusters": catalog.list_clusters(),
            "devices": catalog.list_devices(),
        }
        return {
            kind: [CatalogRow(entry.name, entry.description) for entry in entries]
            for kind, entries in listed.items()
        }

    def catalog_text(self, name: str) -> str:
        """The file of an entry."""
        from planner.formats import catalog

        return catalog.entry_text(name)

    def catalog_json(self, name: str) -> str:
        """An entry as JSON."""
        from planner.formats import catalog

        return catalog.entry_spec(name).model_dump_json(indent=2)


_CURRENT: ContextVar[Backend | None] = ContextVar("backend", default=None)


def backend() -> Backend:
    """Who computes in this run of the command."""
    return _CURRENT.get() or LocalBackend()


def use_backend(chosen: Backend | None) -> None:
    """Choose who computes; None: this process."""
    _CURRENT.set(chosen)
