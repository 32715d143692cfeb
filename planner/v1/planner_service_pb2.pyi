import datetime

from google.longrunning import operations_pb2 as _operations_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from planner.v1 import common_pb2 as _common_pb2
from planner.v1 import curve_pb2 as _curve_pb2
from planner.v1 import inputs_pb2 as _inputs_pb2
from planner.v1 import plan_pb2 as _plan_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Rendering(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RENDERING_UNSPECIFIED: _ClassVar[Rendering]
    RENDERING_SVG: _ClassVar[Rendering]
    RENDERING_CHROME_TRACE: _ClassVar[Rendering]
    RENDERING_TORCH_CSV: _ClassVar[Rendering]
    RENDERING_JSON: _ClassVar[Rendering]
    RENDERING_OPERATIONS_JSON: _ClassVar[Rendering]
    RENDERING_TEXT: _ClassVar[Rendering]

class JobStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATUS_UNSPECIFIED: _ClassVar[JobStatus]
    JOB_STATUS_DONE: _ClassVar[JobStatus]
    JOB_STATUS_INVALID: _ClassVar[JobStatus]
    JOB_STATUS_DEADLINE: _ClassVar[JobStatus]
    JOB_STATUS_FAILED: _ClassVar[JobStatus]

class PlanView(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLAN_VIEW_UNSPECIFIED: _ClassVar[PlanView]
    PLAN_VIEW_BASIC: _ClassVar[PlanView]
    PLAN_VIEW_FULL: _ClassVar[PlanView]

class CatalogKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CATALOG_KIND_UNSPECIFIED: _ClassVar[CatalogKind]
    CATALOG_KIND_MODEL: _ClassVar[CatalogKind]
    CATALOG_KIND_CLUSTER: _ClassVar[CatalogKind]
    CATALOG_KIND_DEVICE: _ClassVar[CatalogKind]
RENDERING_UNSPECIFIED: Rendering
RENDERING_SVG: Rendering
RENDERING_CHROME_TRACE: Rendering
RENDERING_TORCH_CSV: Rendering
RENDERING_JSON: Rendering
RENDERING_OPERATIONS_JSON: Rendering
RENDERING_TEXT: Rendering
JOB_STATUS_UNSPECIFIED: JobStatus
JOB_STATUS_DONE: JobStatus
JOB_STATUS_INVALID: JobStatus
JOB_STATUS_DEADLINE: JobStatus
JOB_STATUS_FAILED: JobStatus
PLAN_VIEW_UNSPECIFIED: PlanView
PLAN_VIEW_BASIC: PlanView
PLAN_VIEW_FULL: PlanView
CATALOG_KIND_UNSPECIFIED: CatalogKind
CATALOG_KIND_MODEL: CatalogKind
CATALOG_KIND_CLUSTER: CatalogKind
CATALOG_KIND_DEVICE: CatalogKind

class PlanQuestion(_message.Message):
    __slots__ = ("model", "cluster", "training", "objective", "runner_up_count", "pareto", "rejected", "warm_start_plan")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    RUNNER_UP_COUNT_FIELD_NUMBER: _ClassVar[int]
    PARETO_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    WARM_START_PLAN_FIELD_NUMBER: _ClassVar[int]
    model: _inputs_pb2.ModelSource
    cluster: _inputs_pb2.ClusterSource
    training: _inputs_pb2.Training
    objective: _common_pb2.Objective
    runner_up_count: int
    pareto: bool
    rejected: bool
    warm_start_plan: _plan_pb2.PlanSource
    def __init__(self, model: _Optional[_Union[_inputs_pb2.ModelSource, _Mapping]] = ..., cluster: _Optional[_Union[_inputs_pb2.ClusterSource, _Mapping]] = ..., training: _Optional[_Union[_inputs_pb2.Training, _Mapping]] = ..., objective: _Optional[_Union[_common_pb2.Objective, str]] = ..., runner_up_count: _Optional[int] = ..., pareto: _Optional[bool] = ..., rejected: _Optional[bool] = ..., warm_start_plan: _Optional[_Union[_plan_pb2.PlanSource, _Mapping]] = ...) -> None: ...

class SolvePlanRequest(_message.Message):
    __slots__ = ("request_id", "validate_only", "question", "limits", "expected")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    validate_only: bool
    question: PlanQuestion
    limits: _common_pb2.Limits
    expected: _common_pb2.ExpectedRevisions
    def __init__(self, request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ..., question: _Optional[_Union[PlanQuestion, _Mapping]] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., expected: _Optional[_Union[_common_pb2.ExpectedRevisions, _Mapping]] = ...) -> None: ...

class SolvePlanResponse(_message.Message):
    __slots__ = ("plan", "plan_id", "termination", "revisions", "warnings")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    plan: _plan_pb2.Plan
    plan_id: str
    termination: _common_pb2.Termination
    revisions: _common_pb2.Revisions
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., plan_id: _Optional[str] = ..., termination: _Optional[_Union[_common_pb2.Termination, _Mapping]] = ..., revisions: _Optional[_Union[_common_pb2.Revisions, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class StreamPlanRequest(_message.Message):
    __slots__ = ("request_id", "validate_only", "question", "limits", "expected")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    validate_only: bool
    question: PlanQuestion
    limits: _common_pb2.Limits
    expected: _common_pb2.ExpectedRevisions
    def __init__(self, request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ..., question: _Optional[_Union[PlanQuestion, _Mapping]] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., expected: _Optional[_Union[_common_pb2.ExpectedRevisions, _Mapping]] = ...) -> None: ...

class PlanProgress(_message.Message):
    __slots__ = ("value_ms", "bound_ms", "gap", "layout", "layouts_done_count", "layouts_total_count")
    VALUE_MS_FIELD_NUMBER: _ClassVar[int]
    BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    LAYOUTS_DONE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAYOUTS_TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    value_ms: float
    bound_ms: float
    gap: float
    layout: _plan_pb2.Layout
    layouts_done_count: int
    layouts_total_count: int
    def __init__(self, value_ms: _Optional[float] = ..., bound_ms: _Optional[float] = ..., gap: _Optional[float] = ..., layout: _Optional[_Union[_plan_pb2.Layout, _Mapping]] = ..., layouts_done_count: _Optional[int] = ..., layouts_total_count: _Optional[int] = ...) -> None: ...

class StreamPlanResponse(_message.Message):
    __slots__ = ("progress", "answer")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    progress: PlanProgress
    answer: SolvePlanResponse
    def __init__(self, progress: _Optional[_Union[PlanProgress, _Mapping]] = ..., answer: _Optional[_Union[SolvePlanResponse, _Mapping]] = ...) -> None: ...

class PartitionStagesRequest(_message.Message):
    __slots__ = ("request_id", "validate_only", "model", "cluster", "stage_count", "microbatch_count", "objective", "schedules", "all_synchronous_schedules", "vpp", "memory_bytes", "bandwidth_bytes_per_s", "latency_ms", "tp", "microbatch_size", "sequence_length", "device", "recompute", "precision", "optimizer", "sequence_parallel", "sends", "limits", "expected")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    STAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    ALL_SYNCHRONOUS_SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    VPP_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    TP_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    validate_only: bool
    model: _inputs_pb2.ModelSource
    cluster: _inputs_pb2.ClusterSource
    stage_count: int
    microbatch_count: int
    objective: _common_pb2.Objective
    schedules: _containers.RepeatedScalarFieldContainer[_common_pb2.Schedule]
    all_synchronous_schedules: bool
    vpp: int
    memory_bytes: int
    bandwidth_bytes_per_s: float
    latency_ms: float
    tp: int
    microbatch_size: int
    sequence_length: int
    device: str
    recompute: _containers.RepeatedScalarFieldContainer[_common_pb2.Recompute]
    precision: _common_pb2.Precision
    optimizer: _common_pb2.Optimizer
    sequence_parallel: bool
    sends: _common_pb2.Sends
    limits: _common_pb2.Limits
    expected: _common_pb2.ExpectedRevisions
    def __init__(self, request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ..., model: _Optional[_Union[_inputs_pb2.ModelSource, _Mapping]] = ..., cluster: _Optional[_Union[_inputs_pb2.ClusterSource, _Mapping]] = ..., stage_count: _Optional[int] = ..., microbatch_count: _Optional[int] = ..., objective: _Optional[_Union[_common_pb2.Objective, str]] = ..., schedules: _Optional[_Iterable[_Union[_common_pb2.Schedule, str]]] = ..., all_synchronous_schedules: _Optional[bool] = ..., vpp: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., bandwidth_bytes_per_s: _Optional[float] = ..., latency_ms: _Optional[float] = ..., tp: _Optional[int] = ..., microbatch_size: _Optional[int] = ..., sequence_length: _Optional[int] = ..., device: _Optional[str] = ..., recompute: _Optional[_Iterable[_Union[_common_pb2.Recompute, str]]] = ..., precision: _Optional[_Union[_common_pb2.Precision, str]] = ..., optimizer: _Optional[_Union[_common_pb2.Optimizer, str]] = ..., sequence_parallel: _Optional[bool] = ..., sends: _Optional[_Union[_common_pb2.Sends, str]] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., expected: _Optional[_Union[_common_pb2.ExpectedRevisions, _Mapping]] = ...) -> None: ...

class PartitionStagesResponse(_message.Message):
    __slots__ = ("plan", "plan_id", "termination", "revisions", "warnings")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    plan: _plan_pb2.Plan
    plan_id: str
    termination: _common_pb2.Termination
    revisions: _common_pb2.Revisions
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., plan_id: _Optional[str] = ..., termination: _Optional[_Union[_common_pb2.Termination, _Mapping]] = ..., revisions: _Optional[_Union[_common_pb2.Revisions, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class EvaluatePlanRequest(_message.Message):
    __slots__ = ("validate_only", "plan", "model", "cluster", "training", "limits", "expected", "request_id")
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    validate_only: bool
    plan: _plan_pb2.PlanSource
    model: _inputs_pb2.ModelSource
    cluster: _inputs_pb2.ClusterSource
    training: _inputs_pb2.Training
    limits: _common_pb2.Limits
    expected: _common_pb2.ExpectedRevisions
    request_id: str
    def __init__(self, validate_only: _Optional[bool] = ..., plan: _Optional[_Union[_plan_pb2.PlanSource, _Mapping]] = ..., model: _Optional[_Union[_inputs_pb2.ModelSource, _Mapping]] = ..., cluster: _Optional[_Union[_inputs_pb2.ClusterSource, _Mapping]] = ..., training: _Optional[_Union[_inputs_pb2.Training, _Mapping]] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., expected: _Optional[_Union[_common_pb2.ExpectedRevisions, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class EvaluatePlanResponse(_message.Message):
    __slots__ = ("plan", "violations", "ok", "bound_recomputed", "layout_bound_checked", "revisions", "warnings")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    BOUND_RECOMPUTED_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_BOUND_CHECKED_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    plan: _plan_pb2.Plan
    violations: _containers.RepeatedCompositeFieldContainer[_plan_pb2.Violation]
    ok: bool
    bound_recomputed: bool
    layout_bound_checked: bool
    revisions: _common_pb2.Revisions
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., violations: _Optional[_Iterable[_Union[_plan_pb2.Violation, _Mapping]]] = ..., ok: _Optional[bool] = ..., bound_recomputed: _Optional[bool] = ..., layout_bound_checked: _Optional[bool] = ..., revisions: _Optional[_Union[_common_pb2.Revisions, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ExplainPlanRequest(_message.Message):
    __slots__ = ("validate_only", "plan", "model", "cluster", "training", "limits", "expected", "request_id")
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    validate_only: bool
    plan: _plan_pb2.PlanSource
    model: _inputs_pb2.ModelSource
    cluster: _inputs_pb2.ClusterSource
    training: _inputs_pb2.Training
    limits: _common_pb2.Limits
    expected: _common_pb2.ExpectedRevisions
    request_id: str
    def __init__(self, validate_only: _Optional[bool] = ..., plan: _Optional[_Union[_plan_pb2.PlanSource, _Mapping]] = ..., model: _Optional[_Union[_inputs_pb2.ModelSource, _Mapping]] = ..., cluster: _Optional[_Union[_inputs_pb2.ClusterSource, _Mapping]] = ..., training: _Optional[_Union[_inputs_pb2.Training, _Mapping]] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., expected: _Optional[_Union[_common_pb2.ExpectedRevisions, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class ExplainPlanResponse(_message.Message):
    __slots__ = ("headline", "breakdown_ms", "findings", "infeasible", "revisions", "warnings", "key_order")
    class BreakdownMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    HEADLINE_FIELD_NUMBER: _ClassVar[int]
    BREAKDOWN_MS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    INFEASIBLE_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    KEY_ORDER_FIELD_NUMBER: _ClassVar[int]
    headline: str
    breakdown_ms: _containers.ScalarMap[str, float]
    findings: _containers.RepeatedScalarFieldContainer[str]
    infeasible: _plan_pb2.Infeasible
    revisions: _common_pb2.Revisions
    warnings: _containers.RepeatedScalarFieldContainer[str]
    key_order: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, headline: _Optional[str] = ..., breakdown_ms: _Optional[_Mapping[str, float]] = ..., findings: _Optional[_Iterable[str]] = ..., infeasible: _Optional[_Union[_plan_pb2.Infeasible, _Mapping]] = ..., revisions: _Optional[_Union[_common_pb2.Revisions, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., key_order: _Optional[_Iterable[str]] = ...) -> None: ...

class RankOrder(_message.Message):
    __slots__ = ("operations",)
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, operations: _Optional[_Iterable[str]] = ...) -> None: ...

class ForeignOrder(_message.Message):
    __slots__ = ("ranks", "text", "name")
    RANKS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedCompositeFieldContainer[RankOrder]
    text: str
    name: str
    def __init__(self, ranks: _Optional[_Iterable[_Union[RankOrder, _Mapping]]] = ..., text: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class SimulateScheduleRequest(_message.Message):
    __slots__ = ("validate_only", "schedule", "plan", "order", "stage_count", "microbatch_count", "chunk_count", "group_size", "forward_ms", "backward_ms", "weight_gradient_ms", "communication_ms", "pair_ms", "reduction_ms", "optimizer_ms", "activation_limit", "freed_at_i", "sends", "aim", "model", "cluster", "training", "renderings", "text_width", "text_color", "text_slots", "limits", "expected", "request_id", "timeline_width", "compared_schedules")
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    STAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_COUNT_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    FORWARD_MS_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_MS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_GRADIENT_MS_FIELD_NUMBER: _ClassVar[int]
    COMMUNICATION_MS_FIELD_NUMBER: _ClassVar[int]
    PAIR_MS_FIELD_NUMBER: _ClassVar[int]
    REDUCTION_MS_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_MS_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_LIMIT_FIELD_NUMBER: _ClassVar[int]
    FREED_AT_I_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    AIM_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    RENDERINGS_FIELD_NUMBER: _ClassVar[int]
    TEXT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    TEXT_COLOR_FIELD_NUMBER: _ClassVar[int]
    TEXT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    COMPARED_SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    validate_only: bool
    schedule: _common_pb2.Schedule
    plan: _plan_pb2.PlanSource
    order: ForeignOrder
    stage_count: int
    microbatch_count: int
    chunk_count: int
    group_size: int
    forward_ms: _containers.RepeatedScalarFieldContainer[float]
    backward_ms: _containers.RepeatedScalarFieldContainer[float]
    weight_gradient_ms: _containers.RepeatedScalarFieldContainer[float]
    communication_ms: _containers.RepeatedScalarFieldContainer[float]
    pair_ms: float
    reduction_ms: _containers.RepeatedScalarFieldContainer[float]
    optimizer_ms: _containers.RepeatedScalarFieldContainer[float]
    activation_limit: _containers.RepeatedScalarFieldContainer[float]
    freed_at_i: float
    sends: _common_pb2.Sends
    aim: str
    model: _inputs_pb2.ModelSource
    cluster: _inputs_pb2.ClusterSource
    training: _inputs_pb2.Training
    renderings: _containers.RepeatedScalarFieldContainer[Rendering]
    text_width: int
    text_color: bool
    text_slots: bool
    limits: _common_pb2.Limits
    expected: _common_pb2.ExpectedRevisions
    request_id: str
    timeline_width: int
    compared_schedules: _containers.RepeatedScalarFieldContainer[_common_pb2.Schedule]
    def __init__(self, validate_only: _Optional[bool] = ..., schedule: _Optional[_Union[_common_pb2.Schedule, str]] = ..., plan: _Optional[_Union[_plan_pb2.PlanSource, _Mapping]] = ..., order: _Optional[_Union[ForeignOrder, _Mapping]] = ..., stage_count: _Optional[int] = ..., microbatch_count: _Optional[int] = ..., chunk_count: _Optional[int] = ..., group_size: _Optional[int] = ..., forward_ms: _Optional[_Iterable[float]] = ..., backward_ms: _Optional[_Iterable[float]] = ..., weight_gradient_ms: _Optional[_Iterable[float]] = ..., communication_ms: _Optional[_Iterable[float]] = ..., pair_ms: _Optional[float] = ..., reduction_ms: _Optional[_Iterable[float]] = ..., optimizer_ms: _Optional[_Iterable[float]] = ..., activation_limit: _Optional[_Iterable[float]] = ..., freed_at_i: _Optional[float] = ..., sends: _Optional[_Union[_common_pb2.Sends, str]] = ..., aim: _Optional[str] = ..., model: _Optional[_Union[_inputs_pb2.ModelSource, _Mapping]] = ..., cluster: _Optional[_Union[_inputs_pb2.ClusterSource, _Mapping]] = ..., training: _Optional[_Union[_inputs_pb2.Training, _Mapping]] = ..., renderings: _Optional[_Iterable[_Union[Rendering, str]]] = ..., text_width: _Optional[int] = ..., text_color: _Optional[bool] = ..., text_slots: _Optional[bool] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., expected: _Optional[_Union[_common_pb2.ExpectedRevisions, _Mapping]] = ..., request_id: _Optional[str] = ..., timeline_width: _Optional[int] = ..., compared_schedules: _Optional[_Iterable[_Union[_common_pb2.Schedule, str]]] = ...) -> None: ...

class RenderedText(_message.Message):
    __slots__ = ("rendering", "text")
    RENDERING_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    rendering: Rendering
    text: str
    def __init__(self, rendering: _Optional[_Union[Rendering, str]] = ..., text: _Optional[str] = ...) -> None: ...

class SimulateScheduleResponse(_message.Message):
    __slots__ = ("schedule", "stage_count", "microbatch_count", "chunk_count", "makespan_ms", "step_time_ms", "span_ms", "waiting_ms", "steady_period_ms", "bubble_fraction", "bubble_of_ideal", "span_bubble", "busy_ms", "in_flight", "weight_versions", "staleness", "peak_activation", "fits", "ranks_over_limit", "texts", "notes", "revisions", "warnings", "compared")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    STAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_COUNT_FIELD_NUMBER: _ClassVar[int]
    MAKESPAN_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SPAN_MS_FIELD_NUMBER: _ClassVar[int]
    WAITING_MS_FIELD_NUMBER: _ClassVar[int]
    STEADY_PERIOD_MS_FIELD_NUMBER: _ClassVar[int]
    BUBBLE_FRACTION_FIELD_NUMBER: _ClassVar[int]
    BUBBLE_OF_IDEAL_FIELD_NUMBER: _ClassVar[int]
    SPAN_BUBBLE_FIELD_NUMBER: _ClassVar[int]
    BUSY_MS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    PEAK_ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    FITS_FIELD_NUMBER: _ClassVar[int]
    RANKS_OVER_LIMIT_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    schedule: str
    stage_count: int
    microbatch_count: int
    chunk_count: int
    makespan_ms: float
    step_time_ms: float
    span_ms: float
    waiting_ms: float
    steady_period_ms: float
    bubble_fraction: float
    bubble_of_ideal: float
    span_bubble: float
    busy_ms: _containers.RepeatedScalarFieldContainer[float]
    in_flight: _containers.RepeatedScalarFieldContainer[int]
    weight_versions: _containers.RepeatedScalarFieldContainer[int]
    staleness: _containers.RepeatedScalarFieldContainer[int]
    peak_activation: _containers.RepeatedScalarFieldContainer[float]
    fits: bool
    ranks_over_limit: _containers.RepeatedScalarFieldContainer[int]
    texts: _containers.RepeatedCompositeFieldContainer[RenderedText]
    notes: _containers.RepeatedScalarFieldContainer[str]
    revisions: _common_pb2.Revisions
    warnings: _containers.RepeatedScalarFieldContainer[str]
    compared: _containers.RepeatedCompositeFieldContainer[SimulateScheduleResponse]
    def __init__(self, schedule: _Optional[str] = ..., stage_count: _Optional[int] = ..., microbatch_count: _Optional[int] = ..., chunk_count: _Optional[int] = ..., makespan_ms: _Optional[float] = ..., step_time_ms: _Optional[float] = ..., span_ms: _Optional[float] = ..., waiting_ms: _Optional[float] = ..., steady_period_ms: _Optional[float] = ..., bubble_fraction: _Optional[float] = ..., bubble_of_ideal: _Optional[float] = ..., span_bubble: _Optional[float] = ..., busy_ms: _Optional[_Iterable[float]] = ..., in_flight: _Optional[_Iterable[int]] = ..., weight_versions: _Optional[_Iterable[int]] = ..., staleness: _Optional[_Iterable[int]] = ..., peak_activation: _Optional[_Iterable[float]] = ..., fits: _Optional[bool] = ..., ranks_over_limit: _Optional[_Iterable[int]] = ..., texts: _Optional[_Iterable[_Union[RenderedText, _Mapping]]] = ..., notes: _Optional[_Iterable[str]] = ..., revisions: _Optional[_Union[_common_pb2.Revisions, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., compared: _Optional[_Iterable[_Union[SimulateScheduleResponse, _Mapping]]] = ...) -> None: ...

class BatchRange(_message.Message):
    __slots__ = ("min_global_batch_size", "max_global_batch_size")
    MIN_GLOBAL_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_GLOBAL_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    min_global_batch_size: int
    max_global_batch_size: int
    def __init__(self, min_global_batch_size: _Optional[int] = ..., max_global_batch_size: _Optional[int] = ...) -> None: ...

class CurveQuestion(_message.Message):
    __slots__ = ("model", "clusters", "training", "batch_range", "allocations", "size_range", "current_plan", "max_restart_s", "valid_until")
    class ClustersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _inputs_pb2.ClusterSource
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_inputs_pb2.ClusterSource, _Mapping]] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    BATCH_RANGE_FIELD_NUMBER: _ClassVar[int]
    ALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    SIZE_RANGE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_PLAN_FIELD_NUMBER: _ClassVar[int]
    MAX_RESTART_S_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_FIELD_NUMBER: _ClassVar[int]
    model: _inputs_pb2.ModelSource
    clusters: _containers.MessageMap[str, _inputs_pb2.ClusterSource]
    training: _inputs_pb2.Training
    batch_range: BatchRange
    allocations: _containers.RepeatedCompositeFieldContainer[_curve_pb2.Allocation]
    size_range: _curve_pb2.SizeRange
    current_plan: _plan_pb2.PlanSource
    max_restart_s: float
    valid_until: str
    def __init__(self, model: _Optional[_Union[_inputs_pb2.ModelSource, _Mapping]] = ..., clusters: _Optional[_Mapping[str, _inputs_pb2.ClusterSource]] = ..., training: _Optional[_Union[_inputs_pb2.Training, _Mapping]] = ..., batch_range: _Optional[_Union[BatchRange, _Mapping]] = ..., allocations: _Optional[_Iterable[_Union[_curve_pb2.Allocation, _Mapping]]] = ..., size_range: _Optional[_Union[_curve_pb2.SizeRange, _Mapping]] = ..., current_plan: _Optional[_Union[_plan_pb2.PlanSource, _Mapping]] = ..., max_restart_s: _Optional[float] = ..., valid_until: _Optional[str] = ...) -> None: ...

class ComputeScalingCurveRequest(_message.Message):
    __slots__ = ("request_id", "validate_only", "question", "limits", "expected")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    validate_only: bool
    question: CurveQuestion
    limits: _common_pb2.Limits
    expected: _common_pb2.ExpectedRevisions
    def __init__(self, request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ..., question: _Optional[_Union[CurveQuestion, _Mapping]] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., expected: _Optional[_Union[_common_pb2.ExpectedRevisions, _Mapping]] = ...) -> None: ...

class ComputeScalingCurveResponse(_message.Message):
    __slots__ = ("point", "answer")
    POINT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    point: _curve_pb2.CurvePoint
    answer: CurveAnswer
    def __init__(self, point: _Optional[_Union[_curve_pb2.CurvePoint, _Mapping]] = ..., answer: _Optional[_Union[CurveAnswer, _Mapping]] = ...) -> None: ...

class CurveAnswer(_message.Message):
    __slots__ = ("curve", "termination", "revisions", "warnings")
    CURVE_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    curve: _curve_pb2.ScalingCurve
    termination: _common_pb2.Termination
    revisions: _common_pb2.Revisions
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, curve: _Optional[_Union[_curve_pb2.ScalingCurve, _Mapping]] = ..., termination: _Optional[_Union[_common_pb2.Termination, _Mapping]] = ..., revisions: _Optional[_Union[_common_pb2.Revisions, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class CurveJob(_message.Message):
    __slots__ = ("job_id", "question", "expected")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    question: CurveQuestion
    expected: _common_pb2.ExpectedRevisions
    def __init__(self, job_id: _Optional[str] = ..., question: _Optional[_Union[CurveQuestion, _Mapping]] = ..., expected: _Optional[_Union[_common_pb2.ExpectedRevisions, _Mapping]] = ...) -> None: ...

class BatchComputeScalingCurvesRequest(_message.Message):
    __slots__ = ("request_id", "validate_only", "jobs", "limits")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    validate_only: bool
    jobs: _containers.RepeatedCompositeFieldContainer[CurveJob]
    limits: _common_pb2.Limits
    def __init__(self, request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ..., jobs: _Optional[_Iterable[_Union[CurveJob, _Mapping]]] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ...) -> None: ...

class JobError(_message.Message):
    __slots__ = ("code", "reason", "message", "field")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    field: str
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., field: _Optional[str] = ...) -> None: ...

class BatchComputeScalingCurvesResponse(_message.Message):
    __slots__ = ("job_id", "status", "answer", "error")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: JobStatus
    answer: CurveAnswer
    error: JobError
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[_Union[JobStatus, str]] = ..., answer: _Optional[_Union[CurveAnswer, _Mapping]] = ..., error: _Optional[_Union[JobError, _Mapping]] = ...) -> None: ...

class CreatePlanRequest(_message.Message):
    __slots__ = ("request_id", "validate_only", "question", "limits", "expected")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    validate_only: bool
    question: PlanQuestion
    limits: _common_pb2.Limits
    expected: _common_pb2.ExpectedRevisions
    def __init__(self, request_id: _Optional[str] = ..., validate_only: _Optional[bool] = ..., question: _Optional[_Union[PlanQuestion, _Mapping]] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., expected: _Optional[_Union[_common_pb2.ExpectedRevisions, _Mapping]] = ...) -> None: ...

class GetPlanRequest(_message.Message):
    __slots__ = ("plan_id",)
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    plan_id: str
    def __init__(self, plan_id: _Optional[str] = ...) -> None: ...

class GetPlanResponse(_message.Message):
    __slots__ = ("plan_id", "plan", "create_time", "expire_time")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    plan_id: str
    plan: _plan_pb2.Plan
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, plan_id: _Optional[str] = ..., plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListPlansRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "view")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    view: PlanView
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., view: _Optional[_Union[PlanView, str]] = ...) -> None: ...

class PlanSummary(_message.Message):
    __slots__ = ("plan_id", "model", "cluster", "status", "num_gpus", "step_time_ms", "create_time", "expire_time", "plan")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NUM_GPUS_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan_id: str
    model: str
    cluster: str
    status: _plan_pb2.Status
    num_gpus: int
    step_time_ms: float
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    plan: _plan_pb2.Plan
    def __init__(self, plan_id: _Optional[str] = ..., model: _Optional[str] = ..., cluster: _Optional[str] = ..., status: _Optional[_Union[_plan_pb2.Status, str]] = ..., num_gpus: _Optional[int] = ..., step_time_ms: _Optional[float] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ...) -> None: ...

class ListPlansResponse(_message.Message):
    __slots__ = ("plans", "next_page_token")
    PLANS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[PlanSummary]
    next_page_token: str
    def __init__(self, plans: _Optional[_Iterable[_Union[PlanSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PutModelRequest(_message.Message):
    __slots__ = ("model", "validate_only")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    model: _inputs_pb2.ModelSource
    validate_only: bool
    def __init__(self, model: _Optional[_Union[_inputs_pb2.ModelSource, _Mapping]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class PutModelResponse(_message.Message):
    __slots__ = ("content_hash", "layer_count", "model_revision", "expire_time", "warnings")
    CONTENT_HASH_FIELD_NUMBER: _ClassVar[int]
    LAYER_COUNT_FIELD_NUMBER: _ClassVar[int]
    MODEL_REVISION_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    content_hash: str
    layer_count: int
    model_revision: str
    expire_time: _timestamp_pb2.Timestamp
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, content_hash: _Optional[str] = ..., layer_count: _Optional[int] = ..., model_revision: _Optional[str] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ListCatalogRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "name")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    name: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class CatalogEntry(_message.Message):
    __slots__ = ("kind", "name", "description", "text", "spec_json")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    kind: CatalogKind
    name: str
    description: str
    text: str
    spec_json: str
    def __init__(self, kind: _Optional[_Union[CatalogKind, str]] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., text: _Optional[str] = ..., spec_json: _Optional[str] = ...) -> None: ...

class ListCatalogResponse(_message.Message):
    __slots__ = ("entries", "next_page_token", "planner_version")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PLANNER_VERSION_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[CatalogEntry]
    next_page_token: str
    planner_version: str
    def __init__(self, entries: _Optional[_Iterable[_Union[CatalogEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., planner_version: _Optional[str] = ...) -> None: ...
