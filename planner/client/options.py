"""Keyword arguments of the client's methods, for type checkers and readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Required, TypedDict

from planner.plans import Plan
from planner.specs import Cluster, Model, Objective, Precision, Recompute, Schedule, Sends, Training

if TYPE_CHECKING:
    from planner.studies.simulation_times import Milliseconds

__all__ = [
    "AnyModel",
    "CallOptions",
    "JudgeOptions",
    "KeptModel",
    "PartitionOptions",
    "PlanOptions",
    "Revisions",
    "SimulateOptions",
    "TrainingOptions",
]

Schedules = Schedule | str | Sequence[Schedule | str]
Recomputes = Recompute | str | Sequence[Recompute | str]


@dataclass(frozen=True)
class Revisions:
    """What an answer was made from; as ``expected`` of a request, what it is to be made from."""

    model_revision: str = ""
    calibration_revision: str = ""
    planner_version: str = ""
    request_hash: str = ""


NO_REVISIONS = Revisions()


@dataclass(frozen=True)
class KeptModel:
    """A model that the server keeps: requests name it by its content.

    Where ``model`` is given, a server that has lost it, or another replica, is sent it again.
    """

    content_hash: str
    model: Model | None = field(default=None, compare=False, repr=False)


AnyModel = Model | KeptModel | str
"""A model, one that the server keeps, a name of its catalog, or a file that is read here."""


class CallOptions(TypedDict, total=False):
    """What every computing method takes.

    ``request_id`` names the request (a new UUID by default): the same id again is the same
    request, so that retries are safe. ``validate_only`` makes all checks and none of the work.
    ``expected`` pins revisions. ``time_limit_s``, ``work_limit`` (branch-and-bound nodes a layout)
    and ``memory_limit_bytes`` limit the solver. ``timeout_s`` is the deadline of the call, queueing
    included; by default the time limit and half a minute, or the client's own timeout.
    """

    request_id: str | None
    validate_only: bool
    expected: Revisions | None
    time_limit_s: float | None
    work_limit: int | None
    memory_limit_bytes: int | None
    timeout_s: float | None


class TrainingOptions(TypedDict, total=False):
    """Fields of :class:`planner.specs.Training` and pins, as ``planner.plan`` takes them."""

    global_batch_size: Required[int]
    sequence_length: int | None
    dp: int | None
    pp: int | None
    tp: int | None
    vpp: int | None
    microbatch_size: int | None
    precision: Precision | str | None
    optimizer: str | None
    sharded_optimizer: bool
    sequence_parallel: bool
    flash_attention: bool
    overlap_gradient_reduction: bool
    schedules: Schedules
    recompute: Recomputes
    sends: Sends | str
    allow_fewer: bool | None
    allow_cross_domain: bool
    max_microbatch_size: int | None


class PlanOptions(TrainingOptions, CallOptions, total=False):
    """As ``planner.plan`` takes them, and ``warm_start``: a plan, or the id of one."""

    objective: Objective | str
    runners_up: int
    pareto: bool
    rejected: bool
    warm_start: Plan | str | None


class PartitionOptions(CallOptions, total=False):
    """As ``planner.partition`` takes them."""

    objective: Objective | str
    cluster: Cluster | str | None
    schedule: Schedules
    schedules: Schedules
    vpp: int | None
    memory_bytes: int | None
    bandwidth_bytes_per_s: float | None
    latency_ms: float
    tp: int
    microbatch_size: int | None
    sequence_length: int | None
    device: str | None
    precision: Precision | str | None
    optimizer: str | None
    sequence_parallel: bool
    recompute: Recomputes
    sends: Sends | str


class JudgeOptions(CallOptions, total=False):
    """As ``planner.evaluate`` and ``planner.explain`` take them."""

    model: AnyModel | None
    cluster: Cluster | str | None
    training: Training | None


class SimulateOptions(CallOptions, total=False):
    """As ``planner.simulate`` takes them, and which texts to return.

    ``compare`` names several schedules to simulate on the same work instead of one.
    ``order`` holds the operations of each rank; ``order_text`` is the text of a schedule file and
    ``order_name`` what to call it. ``renderings`` are names of :class:`planner.client.Rendering`;
    the other four say how wide the terminal's text is, and how it looks.
    """

    stages: int | None
    microbatches: int | None
    chunks: int | None
    group_size: int | None
    forward_ms: Milliseconds | None
    backward_ms: Milliseconds | None
    wgrad_ms: Milliseconds | None
    comm_ms: Milliseconds | None
    pair_ms: float | None
    reduction_ms: Milliseconds | None
    optimizer_ms: Milliseconds | None
    activation_limit: float | Sequence[float] | None
    freed_at_i: float
    sends: Sends | str | None
    aim: str | None
    compare: Sequence[Schedule | str]
    order: Sequence[Sequence[str]] | None
    order_text: str | None
    order_name: str
    model: AnyModel | None
    cluster: Cluster | str | None
    training: Training | None
    renderings: Sequence[str]
    text_width: int
    timeline_width: int
    text_color: bool
    text_slots: bool
