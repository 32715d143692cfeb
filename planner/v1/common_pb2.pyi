from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TerminationReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TERMINATION_REASON_UNSPECIFIED: _ClassVar[TerminationReason]
    TERMINATION_REASON_OPTIMAL: _ClassVar[TerminationReason]
    TERMINATION_REASON_FEASIBLE: _ClassVar[TerminationReason]
    TERMINATION_REASON_INFEASIBLE: _ClassVar[TerminationReason]
    TERMINATION_REASON_NO_SOLUTION_FOUND: _ClassVar[TerminationReason]

class TerminationLimit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TERMINATION_LIMIT_UNSPECIFIED: _ClassVar[TerminationLimit]
    TERMINATION_LIMIT_NONE: _ClassVar[TerminationLimit]
    TERMINATION_LIMIT_TIME: _ClassVar[TerminationLimit]
    TERMINATION_LIMIT_WORK: _ClassVar[TerminationLimit]
    TERMINATION_LIMIT_INTERRUPTED: _ClassVar[TerminationLimit]
    TERMINATION_LIMIT_BOUND: _ClassVar[TerminationLimit]

class Objective(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBJECTIVE_UNSPECIFIED: _ClassVar[Objective]
    OBJECTIVE_STEP_TIME: _ClassVar[Objective]
    OBJECTIVE_BOTTLENECK: _ClassVar[Objective]
    OBJECTIVE_TOKENS_PER_DOLLAR: _ClassVar[Objective]
    OBJECTIVE_FEWEST_GPUS: _ClassVar[Objective]

class Schedule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEDULE_UNSPECIFIED: _ClassVar[Schedule]
    SCHEDULE_NAIVE: _ClassVar[Schedule]
    SCHEDULE_GPIPE: _ClassVar[Schedule]
    SCHEDULE_ONE_F_ONE_B: _ClassVar[Schedule]
    SCHEDULE_EAGER_ONE_F_ONE_B: _ClassVar[Schedule]
    SCHEDULE_PIPEDREAM: _ClassVar[Schedule]
    SCHEDULE_PIPEDREAM_2BW: _ClassVar[Schedule]
    SCHEDULE_INTERLEAVED: _ClassVar[Schedule]
    SCHEDULE_LOOPED_BFS: _ClassVar[Schedule]
    SCHEDULE_ZB_H1: _ClassVar[Schedule]
    SCHEDULE_ZB_H2: _ClassVar[Schedule]
    SCHEDULE_ZB_AUTO: _ClassVar[Schedule]
    SCHEDULE_INTERLEAVED_ZB: _ClassVar[Schedule]
    SCHEDULE_ZB_V: _ClassVar[Schedule]
    SCHEDULE_V_HALF: _ClassVar[Schedule]
    SCHEDULE_V_MIN: _ClassVar[Schedule]
    SCHEDULE_DUALPIPE: _ClassVar[Schedule]
    SCHEDULE_DUALPIPE_V: _ClassVar[Schedule]
    SCHEDULE_CHIMERA: _ClassVar[Schedule]

class Recompute(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECOMPUTE_UNSPECIFIED: _ClassVar[Recompute]
    RECOMPUTE_NONE: _ClassVar[Recompute]
    RECOMPUTE_SELECTIVE: _ClassVar[Recompute]
    RECOMPUTE_FULL: _ClassVar[Recompute]
    RECOMPUTE_LAYERS: _ClassVar[Recompute]

class Precision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRECISION_UNSPECIFIED: _ClassVar[Precision]
    PRECISION_FP32: _ClassVar[Precision]
    PRECISION_TF32: _ClassVar[Precision]
    PRECISION_FP16: _ClassVar[Precision]
    PRECISION_BF16: _ClassVar[Precision]
    PRECISION_FP8: _ClassVar[Precision]

class Optimizer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPTIMIZER_UNSPECIFIED: _ClassVar[Optimizer]
    OPTIMIZER_ADAM: _ClassVar[Optimizer]
    OPTIMIZER_SGD: _ClassVar[Optimizer]
    OPTIMIZER_NONE: _ClassVar[Optimizer]

class Sends(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SENDS_UNSPECIFIED: _ClassVar[Sends]
    SENDS_OVERLAPPED: _ClassVar[Sends]
    SENDS_BLOCKING: _ClassVar[Sends]

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_LOCAL: _ClassVar[Tier]
    TIER_DOMAIN: _ClassVar[Tier]
    TIER_NODE: _ClassVar[Tier]
    TIER_RACK: _ClassVar[Tier]
    TIER_CLUSTER: _ClassVar[Tier]

class Origin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORIGIN_UNSPECIFIED: _ClassVar[Origin]
    ORIGIN_MEASURED: _ClassVar[Origin]
    ORIGIN_INTERPOLATED: _ClassVar[Origin]
    ORIGIN_CALIBRATED: _ClassVar[Origin]
    ORIGIN_FORMULA: _ClassVar[Origin]
TERMINATION_REASON_UNSPECIFIED: TerminationReason
TERMINATION_REASON_OPTIMAL: TerminationReason
TERMINATION_REASON_FEASIBLE: TerminationReason
TERMINATION_REASON_INFEASIBLE: TerminationReason
TERMINATION_REASON_NO_SOLUTION_FOUND: TerminationReason
TERMINATION_LIMIT_UNSPECIFIED: TerminationLimit
TERMINATION_LIMIT_NONE: TerminationLimit
TERMINATION_LIMIT_TIME: TerminationLimit
TERMINATION_LIMIT_WORK: TerminationLimit
TERMINATION_LIMIT_INTERRUPTED: TerminationLimit
TERMINATION_LIMIT_BOUND: TerminationLimit
OBJECTIVE_UNSPECIFIED: Objective
OBJECTIVE_STEP_TIME: Objective
OBJECTIVE_BOTTLENECK: Objective
OBJECTIVE_TOKENS_PER_DOLLAR: Objective
OBJECTIVE_FEWEST_GPUS: Objective
SCHEDULE_UNSPECIFIED: Schedule
SCHEDULE_NAIVE: Schedule
SCHEDULE_GPIPE: Schedule
SCHEDULE_ONE_F_ONE_B: Schedule
SCHEDULE_EAGER_ONE_F_ONE_B: Schedule
SCHEDULE_PIPEDREAM: Schedule
SCHEDULE_PIPEDREAM_2BW: Schedule
SCHEDULE_INTERLEAVED: Schedule
SCHEDULE_LOOPED_BFS: Schedule
SCHEDULE_ZB_H1: Schedule
SCHEDULE_ZB_H2: Schedule
SCHEDULE_ZB_AUTO: Schedule
SCHEDULE_INTERLEAVED_ZB: Schedule
SCHEDULE_ZB_V: Schedule
SCHEDULE_V_HALF: Schedule
SCHEDULE_V_MIN: Schedule
SCHEDULE_DUALPIPE: Schedule
SCHEDULE_DUALPIPE_V: Schedule
SCHEDULE_CHIMERA: Schedule
RECOMPUTE_UNSPECIFIED: Recompute
RECOMPUTE_NONE: Recompute
RECOMPUTE_SELECTIVE: Recompute
RECOMPUTE_FULL: Recompute
RECOMPUTE_LAYERS: Recompute
PRECISION_UNSPECIFIED: Precision
PRECISION_FP32: Precision
PRECISION_TF32: Precision
PRECISION_FP16: Precision
PRECISION_BF16: Precision
PRECISION_FP8: Precision
OPTIMIZER_UNSPECIFIED: Optimizer
OPTIMIZER_ADAM: Optimizer
OPTIMIZER_SGD: Optimizer
OPTIMIZER_NONE: Optimizer
SENDS_UNSPECIFIED: Sends
SENDS_OVERLAPPED: Sends
SENDS_BLOCKING: Sends
TIER_UNSPECIFIED: Tier
TIER_LOCAL: Tier
TIER_DOMAIN: Tier
TIER_NODE: Tier
TIER_RACK: Tier
TIER_CLUSTER: Tier
ORIGIN_UNSPECIFIED: Origin
ORIGIN_MEASURED: Origin
ORIGIN_INTERPOLATED: Origin
ORIGIN_CALIBRATED: Origin
ORIGIN_FORMULA: Origin

class Limits(_message.Message):
    __slots__ = ("work_node_count", "wall_time_s", "memory_bytes")
    WORK_NODE_COUNT_FIELD_NUMBER: _ClassVar[int]
    WALL_TIME_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    work_node_count: int
    wall_time_s: float
    memory_bytes: int
    def __init__(self, work_node_count: _Optional[int] = ..., wall_time_s: _Optional[float] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class ExpectedRevisions(_message.Message):
    __slots__ = ("model_revision", "calibration_revision", "planner_version")
    MODEL_REVISION_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_REVISION_FIELD_NUMBER: _ClassVar[int]
    PLANNER_VERSION_FIELD_NUMBER: _ClassVar[int]
    model_revision: str
    calibration_revision: str
    planner_version: str
    def __init__(self, model_revision: _Optional[str] = ..., calibration_revision: _Optional[str] = ..., planner_version: _Optional[str] = ...) -> None: ...

class Revisions(_message.Message):
    __slots__ = ("model_revision", "calibration_revision", "planner_version", "request_hash")
    MODEL_REVISION_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_REVISION_FIELD_NUMBER: _ClassVar[int]
    PLANNER_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_HASH_FIELD_NUMBER: _ClassVar[int]
    model_revision: str
    calibration_revision: str
    planner_version: str
    request_hash: str
    def __init__(self, model_revision: _Optional[str] = ..., calibration_revision: _Optional[str] = ..., planner_version: _Optional[str] = ..., request_hash: _Optional[str] = ...) -> None: ...

class Termination(_message.Message):
    __slots__ = ("reason", "limit", "value_ms", "bound_ms", "gap")
    REASON_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    VALUE_MS_FIELD_NUMBER: _ClassVar[int]
    BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    reason: TerminationReason
    limit: TerminationLimit
    value_ms: float
    bound_ms: float
    gap: float
    def __init__(self, reason: _Optional[_Union[TerminationReason, str]] = ..., limit: _Optional[_Union[TerminationLimit, str]] = ..., value_ms: _Optional[float] = ..., bound_ms: _Optional[float] = ..., gap: _Optional[float] = ...) -> None: ...
