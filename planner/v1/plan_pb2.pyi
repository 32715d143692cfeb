from planner.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATUS_UNSPECIFIED: _ClassVar[Status]
    STATUS_OPTIMAL: _ClassVar[Status]
    STATUS_FEASIBLE: _ClassVar[Status]
    STATUS_INFEASIBLE: _ClassVar[Status]
    STATUS_UNKNOWN: _ClassVar[Status]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_FITS: _ClassVar[Verdict]
    VERDICT_TIGHT: _ClassVar[Verdict]
    VERDICT_OUT_OF_MEMORY: _ClassVar[Verdict]
STATUS_UNSPECIFIED: Status
STATUS_OPTIMAL: Status
STATUS_FEASIBLE: Status
STATUS_INFEASIBLE: Status
STATUS_UNKNOWN: Status
VERDICT_UNSPECIFIED: Verdict
VERDICT_FITS: Verdict
VERDICT_TIGHT: Verdict
VERDICT_OUT_OF_MEMORY: Verdict

class Layout(_message.Message):
    __slots__ = ("dp", "pp", "tp", "cp", "ep", "vpp", "microbatch_size", "num_microbatches", "schedule", "recompute")
    DP_FIELD_NUMBER: _ClassVar[int]
    PP_FIELD_NUMBER: _ClassVar[int]
    TP_FIELD_NUMBER: _ClassVar[int]
    CP_FIELD_NUMBER: _ClassVar[int]
    EP_FIELD_NUMBER: _ClassVar[int]
    VPP_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_MICROBATCHES_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_FIELD_NUMBER: _ClassVar[int]
    dp: int
    pp: int
    tp: int
    cp: int
    ep: int
    vpp: int
    microbatch_size: int
    num_microbatches: int
    schedule: _common_pb2.Schedule
    recompute: str
    def __init__(self, dp: _Optional[int] = ..., pp: _Optional[int] = ..., tp: _Optional[int] = ..., cp: _Optional[int] = ..., ep: _Optional[int] = ..., vpp: _Optional[int] = ..., microbatch_size: _Optional[int] = ..., num_microbatches: _Optional[int] = ..., schedule: _Optional[_Union[_common_pb2.Schedule, str]] = ..., recompute: _Optional[str] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("layers",)
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    layers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, layers: _Optional[_Iterable[str]] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("rank", "layers", "chunks", "recompute", "recomputed_layers", "forward_ms", "backward_ms", "input_gradient_ms", "weight_gradient_ms", "recompute_ms", "communication_ms", "tensor_parallel_ms", "in_flight", "memory_bytes", "memory", "memory_upper_bytes", "budget_bytes", "verdict", "exposed_reduction_ms", "hidden_reduction_ms", "optimizer_ms", "origin")
    class MemoryEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    RANK_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_LAYERS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_MS_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_MS_FIELD_NUMBER: _ClassVar[int]
    INPUT_GRADIENT_MS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_GRADIENT_MS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_MS_FIELD_NUMBER: _ClassVar[int]
    COMMUNICATION_MS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_PARALLEL_MS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_UPPER_BYTES_FIELD_NUMBER: _ClassVar[int]
    BUDGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_REDUCTION_MS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_REDUCTION_MS_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_MS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    rank: int
    layers: _containers.RepeatedScalarFieldContainer[str]
    chunks: _containers.RepeatedCompositeFieldContainer[Chunk]
    recompute: _common_pb2.Recompute
    recomputed_layers: int
    forward_ms: float
    backward_ms: float
    input_gradient_ms: float
    weight_gradient_ms: float
    recompute_ms: float
    communication_ms: float
    tensor_parallel_ms: float
    in_flight: int
    memory_bytes: int
    memory: _containers.ScalarMap[str, int]
    memory_upper_bytes: int
    budget_bytes: int
    verdict: Verdict
    exposed_reduction_ms: float
    hidden_reduction_ms: float
    optimizer_ms: float
    origin: _common_pb2.Origin
    def __init__(self, rank: _Optional[int] = ..., layers: _Optional[_Iterable[str]] = ..., chunks: _Optional[_Iterable[_Union[Chunk, _Mapping]]] = ..., recompute: _Optional[_Union[_common_pb2.Recompute, str]] = ..., recomputed_layers: _Optional[int] = ..., forward_ms: _Optional[float] = ..., backward_ms: _Optional[float] = ..., input_gradient_ms: _Optional[float] = ..., weight_gradient_ms: _Optional[float] = ..., recompute_ms: _Optional[float] = ..., communication_ms: _Optional[float] = ..., tensor_parallel_ms: _Optional[float] = ..., in_flight: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., memory: _Optional[_Mapping[str, int]] = ..., memory_upper_bytes: _Optional[int] = ..., budget_bytes: _Optional[int] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., exposed_reduction_ms: _Optional[float] = ..., hidden_reduction_ms: _Optional[float] = ..., optimizer_ms: _Optional[float] = ..., origin: _Optional[_Union[_common_pb2.Origin, str]] = ...) -> None: ...

class StepTerms(_message.Message):
    __slots__ = ("makespan_ms", "exposed_reduction_ms", "optimizer_ms", "fixed_ms", "hidden_reduction_ms")
    MAKESPAN_MS_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_REDUCTION_MS_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_MS_FIELD_NUMBER: _ClassVar[int]
    FIXED_MS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_REDUCTION_MS_FIELD_NUMBER: _ClassVar[int]
    makespan_ms: float
    exposed_reduction_ms: float
    optimizer_ms: float
    fixed_ms: float
    hidden_reduction_ms: float
    def __init__(self, makespan_ms: _Optional[float] = ..., exposed_reduction_ms: _Optional[float] = ..., optimizer_ms: _Optional[float] = ..., fixed_ms: _Optional[float] = ..., hidden_reduction_ms: _Optional[float] = ...) -> None: ...

class CollectiveGroup(_message.Message):
    __slots__ = ("kind", "ranks", "tier", "bytes_per_step", "hidden_ms", "exposed_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_STEP_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_MS_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_MS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    ranks: int
    tier: _common_pb2.Tier
    bytes_per_step: int
    hidden_ms: float
    exposed_ms: float
    def __init__(self, kind: _Optional[str] = ..., ranks: _Optional[int] = ..., tier: _Optional[_Union[_common_pb2.Tier, str]] = ..., bytes_per_step: _Optional[int] = ..., hidden_ms: _Optional[float] = ..., exposed_ms: _Optional[float] = ...) -> None: ...

class PlanTermination(_message.Message):
    __slots__ = ("reason", "limit")
    REASON_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    limit: float
    def __init__(self, reason: _Optional[str] = ..., limit: _Optional[float] = ...) -> None: ...

class Certificate(_message.Message):
    __slots__ = ("bound_kind", "cuts", "recompute", "value_quanta", "bound_quanta", "quantum_ms", "witness", "simulations", "nodes", "probes", "layouts", "layouts_solved")
    class WitnessEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: WitnessValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[WitnessValue, _Mapping]] = ...) -> None: ...
    BOUND_KIND_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_FIELD_NUMBER: _ClassVar[int]
    VALUE_QUANTA_FIELD_NUMBER: _ClassVar[int]
    BOUND_QUANTA_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_MS_FIELD_NUMBER: _ClassVar[int]
    WITNESS_FIELD_NUMBER: _ClassVar[int]
    SIMULATIONS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PROBES_FIELD_NUMBER: _ClassVar[int]
    LAYOUTS_FIELD_NUMBER: _ClassVar[int]
    LAYOUTS_SOLVED_FIELD_NUMBER: _ClassVar[int]
    bound_kind: str
    cuts: _containers.RepeatedScalarFieldContainer[int]
    recompute: _containers.RepeatedScalarFieldContainer[_common_pb2.Recompute]
    value_quanta: str
    bound_quanta: str
    quantum_ms: str
    witness: _containers.MessageMap[str, WitnessValue]
    simulations: int
    nodes: int
    probes: int
    layouts: int
    layouts_solved: int
    def __init__(self, bound_kind: _Optional[str] = ..., cuts: _Optional[_Iterable[int]] = ..., recompute: _Optional[_Iterable[_Union[_common_pb2.Recompute, str]]] = ..., value_quanta: _Optional[str] = ..., bound_quanta: _Optional[str] = ..., quantum_ms: _Optional[str] = ..., witness: _Optional[_Mapping[str, WitnessValue]] = ..., simulations: _Optional[int] = ..., nodes: _Optional[int] = ..., probes: _Optional[int] = ..., layouts: _Optional[int] = ..., layouts_solved: _Optional[int] = ...) -> None: ...

class WitnessValue(_message.Message):
    __slots__ = ("integer", "text")
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    integer: str
    text: str
    def __init__(self, integer: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Suggestion(_message.Message):
    __slots__ = ("change", "arguments", "step_time_ms", "bottleneck_ms", "verified")
    class ArgumentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    BOTTLENECK_MS_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    change: str
    arguments: _containers.ScalarMap[str, str]
    step_time_ms: float
    bottleneck_ms: float
    verified: bool
    def __init__(self, change: _Optional[str] = ..., arguments: _Optional[_Mapping[str, str]] = ..., step_time_ms: _Optional[float] = ..., bottleneck_ms: _Optional[float] = ..., verified: _Optional[bool] = ...) -> None: ...

class Infeasible(_message.Message):
    __slots__ = ("constraint", "message", "rank", "short_bytes", "suggestions")
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SHORT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SUGGESTIONS_FIELD_NUMBER: _ClassVar[int]
    constraint: str
    message: str
    rank: int
    short_bytes: int
    suggestions: _containers.RepeatedCompositeFieldContainer[Suggestion]
    def __init__(self, constraint: _Optional[str] = ..., message: _Optional[str] = ..., rank: _Optional[int] = ..., short_bytes: _Optional[int] = ..., suggestions: _Optional[_Iterable[_Union[Suggestion, _Mapping]]] = ...) -> None: ...

class Rejected(_message.Message):
    __slots__ = ("layout", "reason", "detail", "step_time_ms", "bound_ms", "short_bytes")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    SHORT_BYTES_FIELD_NUMBER: _ClassVar[int]
    layout: Layout
    reason: str
    detail: str
    step_time_ms: float
    bound_ms: float
    short_bytes: int
    def __init__(self, layout: _Optional[_Union[Layout, _Mapping]] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., step_time_ms: _Optional[float] = ..., bound_ms: _Optional[float] = ..., short_bytes: _Optional[int] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("layout", "step_time_ms", "bottleneck_ms", "peak_memory_bytes", "num_gpus", "tokens_per_s", "tokens_per_dollar", "why")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    BOTTLENECK_MS_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_GPUS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_DOLLAR_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    layout: Layout
    step_time_ms: float
    bottleneck_ms: float
    peak_memory_bytes: int
    num_gpus: int
    tokens_per_s: float
    tokens_per_dollar: float
    why: str
    def __init__(self, layout: _Optional[_Union[Layout, _Mapping]] = ..., step_time_ms: _Optional[float] = ..., bottleneck_ms: _Optional[float] = ..., peak_memory_bytes: _Optional[int] = ..., num_gpus: _Optional[int] = ..., tokens_per_s: _Optional[float] = ..., tokens_per_dollar: _Optional[float] = ..., why: _Optional[str] = ...) -> None: ...

class Violation(_message.Message):
    __slots__ = ("code", "message", "rank")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    rank: int
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("status", "objective", "time_model", "model", "cluster", "layout", "stages", "sends", "bottleneck_ms", "step_time_ms", "step_terms", "bound_ms", "gap", "bound_covers", "bubble_fraction", "tokens_per_s", "tokens_per_dollar", "mfu", "num_gpus", "idle_gpus", "peak_memory_bytes", "communication", "rank_order", "global_batch_size", "sequence_length", "sequence_length_assumed", "precision", "optimizer", "origins", "runners_up", "pareto", "rejected", "infeasible", "certificate", "termination", "notes", "inputs", "key_order")
    class OriginsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    TIME_MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    BOTTLENECK_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_TERMS_FIELD_NUMBER: _ClassVar[int]
    BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    BOUND_COVERS_FIELD_NUMBER: _ClassVar[int]
    BUBBLE_FRACTION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_DOLLAR_FIELD_NUMBER: _ClassVar[int]
    MFU_FIELD_NUMBER: _ClassVar[int]
    NUM_GPUS_FIELD_NUMBER: _ClassVar[int]
    IDLE_GPUS_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMUNICATION_FIELD_NUMBER: _ClassVar[int]
    RANK_ORDER_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTH_ASSUMED_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    RUNNERS_UP_FIELD_NUMBER: _ClassVar[int]
    PARETO_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    INFEASIBLE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    KEY_ORDER_FIELD_NUMBER: _ClassVar[int]
    status: Status
    objective: _common_pb2.Objective
    time_model: str
    model: str
    cluster: str
    layout: Layout
    stages: _containers.RepeatedCompositeFieldContainer[Stage]
    sends: _common_pb2.Sends
    bottleneck_ms: float
    step_time_ms: float
    step_terms: StepTerms
    bound_ms: float
    gap: float
    bound_covers: str
    bubble_fraction: float
    tokens_per_s: float
    tokens_per_dollar: float
    mfu: float
    num_gpus: int
    idle_gpus: int
    peak_memory_bytes: int
    communication: _containers.RepeatedCompositeFieldContainer[CollectiveGroup]
    rank_order: str
    global_batch_size: int
    sequence_length: int
    sequence_length_assumed: bool
    precision: _common_pb2.Precision
    optimizer: str
    origins: _containers.ScalarMap[str, float]
    runners_up: _containers.RepeatedCompositeFieldContainer[Candidate]
    pareto: _containers.RepeatedCompositeFieldContainer[Candidate]
    rejected: _containers.RepeatedCompositeFieldContainer[Rejected]
    infeasible: Infeasible
    certificate: Certificate
    termination: PlanTermination
    notes: _containers.RepeatedScalarFieldContainer[str]
    inputs: _containers.ScalarMap[str, str]
    key_order: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., objective: _Optional[_Union[_common_pb2.Objective, str]] = ..., time_model: _Optional[str] = ..., model: _Optional[str] = ..., cluster: _Optional[str] = ..., layout: _Optional[_Union[Layout, _Mapping]] = ..., stages: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ..., sends: _Optional[_Union[_common_pb2.Sends, str]] = ..., bottleneck_ms: _Optional[float] = ..., step_time_ms: _Optional[float] = ..., step_terms: _Optional[_Union[StepTerms, _Mapping]] = ..., bound_ms: _Optional[float] = ..., gap: _Optional[float] = ..., bound_covers: _Optional[str] = ..., bubble_fraction: _Optional[float] = ..., tokens_per_s: _Optional[float] = ..., tokens_per_dollar: _Optional[float] = ..., mfu: _Optional[float] = ..., num_gpus: _Optional[int] = ..., idle_gpus: _Optional[int] = ..., peak_memory_bytes: _Optional[int] = ..., communication: _Optional[_Iterable[_Union[CollectiveGroup, _Mapping]]] = ..., rank_order: _Optional[str] = ..., global_batch_size: _Optional[int] = ..., sequence_length: _Optional[int] = ..., sequence_length_assumed: _Optional[bool] = ..., precision: _Optional[_Union[_common_pb2.Precision, str]] = ..., optimizer: _Optional[str] = ..., origins: _Optional[_Mapping[str, float]] = ..., runners_up: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ..., pareto: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ..., rejected: _Optional[_Iterable[_Union[Rejected, _Mapping]]] = ..., infeasible: _Optional[_Union[Infeasible, _Mapping]] = ..., certificate: _Optional[_Union[Certificate, _Mapping]] = ..., termination: _Optional[_Union[PlanTermination, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ..., inputs: _Optional[_Mapping[str, str]] = ..., key_order: _Optional[_Iterable[str]] = ...) -> None: ...

class PlanSource(_message.Message):
    __slots__ = ("plan_id", "plan", "plan_json")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PLAN_JSON_FIELD_NUMBER: _ClassVar[int]
    plan_id: str
    plan: Plan
    plan_json: str
    def __init__(self, plan_id: _Optional[str] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ..., plan_json: _Optional[str] = ...) -> None: ...
