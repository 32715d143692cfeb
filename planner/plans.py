"""What a caller gets: a plan with its stages, proof, reasons and origins. Frozen, JSON-ready.

The JSON keys are a contract (``planner schema plan`` prints it): fields are added, never renamed.
"""

from __future__ import annotations

from enum import StrEnum

from planner.specs import Frozen, Objective, Origin, Precision, Recompute, Schedule, Sends, Tier

__all__ = [
    "Candidate",
    "Certificate",
    "CollectiveGroup",
    "Explanation",
    "Infeasible",
    "Layout",
    "Plan",
    "Rejected",
    "Stage",
    "Status",
    "StepTerms",
    "Suggestion",
    "Termination",
    "Verdict",
    "Violation",
]


class Status(StrEnum):
    """How much is known about a plan."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class Verdict(StrEnum):
    """Whether a stage fits: the estimate's upper bound decides between fits and tight."""

    FITS = "fits"
    TIGHT = "tight"
    OUT_OF_MEMORY = "out_of_memory"


class Layout(Frozen):
    """Parallel degrees and batch shape; world size = dp x pp x tp x cp."""

    dp: int = 1
    pp: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1
    vpp: int = 1
    microbatch_size: int = 1
    num_microbatches: int = 1
    schedule: Schedule = Schedule.ONE_F_ONE_B
    recompute: str = Recompute.NONE.value
    """The mode all stages share, or ``mixed``."""

    @property
    def num_gpus(self) -> int:
        """World size."""
        return self.dp * self.pp * self.tp * self.cp

    def short(self) -> str:
        """A one-line label.

        Examples
        --------
        >>> Layout(dp=16, pp=8, tp=8, microbatch_size=1, num_microbatches=96).short()
        'dp16 x pp8 x tp8, m=1, M=96, 1f1b'
        """
        chunks = f" x vpp{self.vpp}" if self.vpp > 1 else ""
        return (
            f"dp{self.dp} x pp{self.pp} x tp{self.tp}{chunks}, m={self.microbatch_size}, "
            f"M={self.num_microbatches}, {self.schedule.value}"
        )


class Stage(Frozen):
    """What one pipeline rank holds and what that costs a micro-batch.

    Rank and layers are enough for a sketch that ``planner evaluate`` is to price.
    """

    rank: int
    layers: tuple[str, ...]
    chunks: tuple[tuple[str, ...], ...] = ()
    recompute: Recompute = Recompute.NONE
    recomputed_layers: int = 0
    """Layers recomputed in full (all of them for ``full``, the first few for ``layers``)."""
    forward_ms: float = 0.0
    backward_ms: float = 0.0
    input_gradient_ms: float = 0.0
    weight_gradient_ms: float = 0.0
    recompute_ms: float = 0.0
    """What recompute adds; part of backward_ms and input_gradient_ms."""
    communication_ms: float = 0.0
    """Sends and receives of activations and gradients at both cuts, per micro-batch."""
    tensor_parallel_ms: float = 0.0
    """Exposed tensor-parallel collectives inside forward_ms + backward_ms."""
    in_flight: int = 0
    memory_bytes: int = 0
    memory: dict[str, int] = {}
    """Bytes by term; the terms add up to memory_bytes."""
    memory_upper_bytes: int = 0
    budget_bytes: int = 0
    verdict: Verdict = Verdict.FITS
    exposed_reduction_ms: float = 0.0
    hidden_reduction_ms: float = 0.0
    optimizer_ms: float = 0.0
    origin: Origin = Origin.FORMULA

    @property
    def is_limited(self) -> bool:
        """Whether there is a memory limit; a partition without one has a budget beyond any GPU."""
        return self.budget_bytes < 2**59


class StepTerms(Frozen):
    """The step time taken apart: makespan + reduction + optimizer + fixed = step_time_ms."""

    makespan_ms: float
    """Simulated time from the first forward to the last backward of any rank."""
    exposed_reduction_ms: float
    """What gradient reductions add after the makespan."""
    optimizer_ms: float
    fixed_ms: float
    """Per-step overhead and the reduction of tied embeddings."""
    hidden_reduction_ms: float = 0.0
    """Largest part of a rank's reduction that runs under its backward."""


class CollectiveGroup(Frozen):
    """One kind of communication of the plan and the wires it uses."""

    kind: str
    """tensor, pipeline or data."""
    ranks: int
    tier: Tier
    bytes_per_step: int
    """Bytes one rank sends in a step."""
    hidden_ms: float = 0.0
    exposed_ms: float = 0.0


class Termination(Frozen):
    """Why the solver stopped."""

    reason: str
    """proven, work_limit, time_limit, stopped (by the caller), weak_bound (no work would have
    closed the gap)."""
    limit: float | None = None


class Certificate(Frozen):
    """What a third party needs to check value and bound without the solver.

    ``check.py`` re-prices ``cuts`` for the value, and recomputes the bound from its witness:
    for cuts, the bound's own chain problem; for a space, the bound of every layout.
    """

    bound_kind: str
    """Which bound: bottleneck_dp, interval_makespan, gpipe_closed_form, branch_and_bound, ..."""
    cuts: tuple[int, ...]
    """0 = c_0 < ... < c_P = N over blocks."""
    recompute: tuple[Recompute, ...]
    value_quanta: int
    bound_quanta: int
    quantum_ms: str
    """Length of one integer time unit as an exact decimal."""
    witness: dict[str, int | str] = {}
    simulations: int = 0
    nodes: int = 0
    probes: int = 0
    layouts: int = 0
    layouts_solved: int = 0


class Suggestion(Frozen):
    """One change that was tried and makes an infeasible question feasible."""

    change: str
    arguments: dict[str, str] = {}
    """Command-line flags to add or replace."""
    step_time_ms: float | None = None
    bottleneck_ms: float | None = None
    verified: bool = True


class Infeasible(Frozen):
    """Why nothing fits."""

    constraint: str
    """memory, divisibility, pins, stages."""
    message: str
    rank: int | None = None
    short_bytes: int | None = None
    suggestions: tuple[Suggestion, ...] = ()


class Rejected(Frozen):
    """A layout that was looked at and lost, and why."""

    layout: Layout
    reason: str
    """memory, slower, bound, divisibility, ..."""
    detail: str
    step_time_ms: float | None = None
    bound_ms: float | None = None
    short_bytes: int | None = None
    """What all ranks together lack, where that is why it was rejected."""


class Candidate(Frozen):
    """A runner-up: its layout, its figures and why it loses."""

    layout: Layout
    step_time_ms: float
    bottleneck_ms: float
    peak_memory_bytes: int
    num_gpus: int
    tokens_per_s: float | None = None
    tokens_per_dollar: float | None = None
    why: str = ""


class Violation(Frozen):
    """Something a plan says that is not so."""

    code: str
    message: str
    rank: int | None = None


class Explanation(Frozen):
    """Why a plan is what it is."""

    headline: str
    """The one thing that limits it."""
    breakdown_ms: dict[str, float] = {}
    """Parts of the step time; they add up to it."""
    findings: tuple[str, ...] = ()
    """What limits time and memory, largest first."""
    infeasible: Infeasible | None = None


class Plan(Frozen):
    """The answer. ``bound_ms`` bounds the value named by ``objective``."""

    status: Status = Status.FEASIBLE
    objective: Objective = Objective.STEP_TIME
    time_model: str = "simulated"
    model: str = ""
    cluster: str | None = None
    layout: Layout = Layout()
    stages: tuple[Stage, ...] = ()
    sends: Sends = Sends.OVERLAPPED
    bottleneck_ms: float | None = None
    step_time_ms: float | None = None
    step_terms: StepTerms | None = None
    bound_ms: float | None = None
    gap: float | None = None
    bound_covers: str = "cuts"
    bubble_fraction: float | None = None
    tokens_per_s: float | None = None
    tokens_per_dollar: float | None = None
    mfu: float | None = None
    num_gpus: int = 1
    idle_gpus: int = 0
    peak_memory_bytes: int | None = None
    communication: tuple[CollectiveGroup, ...] = ()
    rank_order: str = "tp-cp-dp-pp"
    global_batch_size: int | None = None
    """Samples of a step."""
    sequence_length: int | None = None
    """Tokens of a sample; None where the prices do not depend on it (a cut of a profile)."""
    sequence_length_assumed: bool = False
    """Nobody gave the sequence length: it is the model's context length."""
    precision: Precision | None = None
    optimizer: str | None = None
    origins: dict[str, float] = {}
    """Share of the stage time by origin; they add up to 1."""
    runners_up: tuple[Candidate, ...] = ()
    pareto: tuple[Candidate, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    infeasible: Infeasible | None = None
    certificate: Certificate | None = None
    termination: Termination | None = None
    notes: tuple[str, ...] = ()
    inputs: dict[str, str] = {}
    """Hashes and names of what was asked: model, cluster, training, planner version."""

    def to_json(self, indent: int | None = 2) -> str:
        """Canonical JSON: same plan, same bytes."""
        return self.model_dump_json(indent=indent) + "\n"
