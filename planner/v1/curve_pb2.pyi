from planner.v1 import common_pb2 as _common_pb2
from planner.v1 import plan_pb2 as _plan_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PointStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POINT_STATUS_UNSPECIFIED: _ClassVar[PointStatus]
    POINT_STATUS_FEASIBLE: _ClassVar[PointStatus]
    POINT_STATUS_INFEASIBLE_MEMORY: _ClassVar[PointStatus]
    POINT_STATUS_INFEASIBLE_DIVISIBILITY: _ClassVar[PointStatus]
    POINT_STATUS_INFEASIBLE_BATCH: _ClassVar[PointStatus]
    POINT_STATUS_DEADLINE: _ClassVar[PointStatus]
    POINT_STATUS_UNPROFILED: _ClassVar[PointStatus]

class TransitionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSITION_KIND_UNSPECIFIED: _ClassVar[TransitionKind]
    TRANSITION_KIND_NONE: _ClassVar[TransitionKind]
    TRANSITION_KIND_DATA_PARALLEL_ONLY: _ClassVar[TransitionKind]
    TRANSITION_KIND_REPARTITION: _ClassVar[TransitionKind]
POINT_STATUS_UNSPECIFIED: PointStatus
POINT_STATUS_FEASIBLE: PointStatus
POINT_STATUS_INFEASIBLE_MEMORY: PointStatus
POINT_STATUS_INFEASIBLE_DIVISIBILITY: PointStatus
POINT_STATUS_INFEASIBLE_BATCH: PointStatus
POINT_STATUS_DEADLINE: PointStatus
POINT_STATUS_UNPROFILED: PointStatus
TRANSITION_KIND_UNSPECIFIED: TransitionKind
TRANSITION_KIND_NONE: TransitionKind
TRANSITION_KIND_DATA_PARALLEL_ONLY: TransitionKind
TRANSITION_KIND_REPARTITION: TransitionKind

class Allocation(_message.Message):
    __slots__ = ("gpu_type", "nodes", "gpus_per_node", "excluded_nodes")
    GPU_TYPE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    GPUS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_NODES_FIELD_NUMBER: _ClassVar[int]
    gpu_type: str
    nodes: int
    gpus_per_node: int
    excluded_nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, gpu_type: _Optional[str] = ..., nodes: _Optional[int] = ..., gpus_per_node: _Optional[int] = ..., excluded_nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class SizeRange(_message.Message):
    __slots__ = ("min_gpus", "max_gpus", "step", "gpu_type")
    MIN_GPUS_FIELD_NUMBER: _ClassVar[int]
    MAX_GPUS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPE_FIELD_NUMBER: _ClassVar[int]
    min_gpus: int
    max_gpus: int
    step: int
    gpu_type: str
    def __init__(self, min_gpus: _Optional[int] = ..., max_gpus: _Optional[int] = ..., step: _Optional[int] = ..., gpu_type: _Optional[str] = ...) -> None: ...

class StageMemory(_message.Message):
    __slots__ = ("rank", "memory_bytes", "limit_bytes")
    RANK_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    rank: int
    memory_bytes: int
    limit_bytes: int
    def __init__(self, rank: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., limit_bytes: _Optional[int] = ...) -> None: ...

class Transition(_message.Message):
    __slots__ = ("kind", "bytes_moved", "seconds", "exceeds_max_restart")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BYTES_MOVED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXCEEDS_MAX_RESTART_FIELD_NUMBER: _ClassVar[int]
    kind: TransitionKind
    bytes_moved: int
    seconds: float
    exceeds_max_restart: bool
    def __init__(self, kind: _Optional[_Union[TransitionKind, str]] = ..., bytes_moved: _Optional[int] = ..., seconds: _Optional[float] = ..., exceeds_max_restart: _Optional[bool] = ...) -> None: ...

class PlacementGroup(_message.Message):
    __slots__ = ("kind", "size", "count", "level", "required")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    kind: str
    size: int
    count: int
    level: _common_pb2.Tier
    required: bool
    def __init__(self, kind: _Optional[str] = ..., size: _Optional[int] = ..., count: _Optional[int] = ..., level: _Optional[_Union[_common_pb2.Tier, str]] = ..., required: _Optional[bool] = ...) -> None: ...

class Placement(_message.Message):
    __slots__ = ("groups", "nodes", "gpus_per_node", "gpus_used", "kueue", "slurm", "volcano")
    class KueueEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class VolcanoEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    GPUS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    GPUS_USED_FIELD_NUMBER: _ClassVar[int]
    KUEUE_FIELD_NUMBER: _ClassVar[int]
    SLURM_FIELD_NUMBER: _ClassVar[int]
    VOLCANO_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[PlacementGroup]
    nodes: int
    gpus_per_node: int
    gpus_used: int
    kueue: _containers.ScalarMap[str, str]
    slurm: _containers.RepeatedScalarFieldContainer[str]
    volcano: _containers.ScalarMap[str, str]
    def __init__(self, groups: _Optional[_Iterable[_Union[PlacementGroup, _Mapping]]] = ..., nodes: _Optional[int] = ..., gpus_per_node: _Optional[int] = ..., gpus_used: _Optional[int] = ..., kueue: _Optional[_Mapping[str, str]] = ..., slurm: _Optional[_Iterable[str]] = ..., volcano: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CurvePoint(_message.Message):
    __slots__ = ("allocation", "num_gpus", "gpus_used", "status", "message", "global_batch_size", "step_time_ms", "samples_per_s", "samples_per_s_low", "samples_per_s_high", "tokens_per_s", "marginal_samples_per_s_per_gpu", "plan_id", "layout", "stage_layer_counts", "recompute", "stage_memory", "measured_fraction", "proven", "bound_ms", "gap", "binding_constraint", "transition", "placement", "cuts")
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    NUM_GPUS_FIELD_NUMBER: _ClassVar[int]
    GPUS_USED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_S_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_S_LOW_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_S_HIGH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    MARGINAL_SAMPLES_PER_S_PER_GPU_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    STAGE_LAYER_COUNTS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_FIELD_NUMBER: _ClassVar[int]
    STAGE_MEMORY_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FRACTION_FIELD_NUMBER: _ClassVar[int]
    PROVEN_FIELD_NUMBER: _ClassVar[int]
    BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    BINDING_CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    TRANSITION_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    allocation: Allocation
    num_gpus: int
    gpus_used: int
    status: PointStatus
    message: str
    global_batch_size: int
    step_time_ms: float
    samples_per_s: float
    samples_per_s_low: float
    samples_per_s_high: float
    tokens_per_s: float
    marginal_samples_per_s_per_gpu: float
    plan_id: str
    layout: _plan_pb2.Layout
    stage_layer_counts: _containers.RepeatedScalarFieldContainer[int]
    recompute: _containers.RepeatedScalarFieldContainer[_common_pb2.Recompute]
    stage_memory: _containers.RepeatedCompositeFieldContainer[StageMemory]
    measured_fraction: float
    proven: bool
    bound_ms: float
    gap: float
    binding_constraint: str
    transition: Transition
    placement: Placement
    cuts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, allocation: _Optional[_Union[Allocation, _Mapping]] = ..., num_gpus: _Optional[int] = ..., gpus_used: _Optional[int] = ..., status: _Optional[_Union[PointStatus, str]] = ..., message: _Optional[str] = ..., global_batch_size: _Optional[int] = ..., step_time_ms: _Optional[float] = ..., samples_per_s: _Optional[float] = ..., samples_per_s_low: _Optional[float] = ..., samples_per_s_high: _Optional[float] = ..., tokens_per_s: _Optional[float] = ..., marginal_samples_per_s_per_gpu: _Optional[float] = ..., plan_id: _Optional[str] = ..., layout: _Optional[_Union[_plan_pb2.Layout, _Mapping]] = ..., stage_layer_counts: _Optional[_Iterable[int]] = ..., recompute: _Optional[_Iterable[_Union[_common_pb2.Recompute, str]]] = ..., stage_memory: _Optional[_Iterable[_Union[StageMemory, _Mapping]]] = ..., measured_fraction: _Optional[float] = ..., proven: _Optional[bool] = ..., bound_ms: _Optional[float] = ..., gap: _Optional[float] = ..., binding_constraint: _Optional[str] = ..., transition: _Optional[_Union[Transition, _Mapping]] = ..., placement: _Optional[_Union[Placement, _Mapping]] = ..., cuts: _Optional[_Iterable[int]] = ...) -> None: ...

class EnvelopePoint(_message.Message):
    __slots__ = ("num_gpus", "gpus_used", "samples_per_s", "plan_id", "gpu_type")
    NUM_GPUS_FIELD_NUMBER: _ClassVar[int]
    GPUS_USED_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_S_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPE_FIELD_NUMBER: _ClassVar[int]
    num_gpus: int
    gpus_used: int
    samples_per_s: float
    plan_id: str
    gpu_type: str
    def __init__(self, num_gpus: _Optional[int] = ..., gpus_used: _Optional[int] = ..., samples_per_s: _Optional[float] = ..., plan_id: _Optional[str] = ..., gpu_type: _Optional[str] = ...) -> None: ...

class ScalingCurve(_message.Message):
    __slots__ = ("points", "envelope", "recommended_sizes", "minimum_gpus", "minimum_proven", "valid_until", "notes", "spare", "model", "termination", "inputs")
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    POINTS_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDED_SIZES_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_GPUS_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_PROVEN_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    SPARE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TERMINATION_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[CurvePoint]
    envelope: _containers.RepeatedCompositeFieldContainer[EnvelopePoint]
    recommended_sizes: _containers.RepeatedScalarFieldContainer[int]
    minimum_gpus: int
    minimum_proven: bool
    valid_until: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    spare: _containers.RepeatedCompositeFieldContainer[CurvePoint]
    model: str
    termination: _plan_pb2.PlanTermination
    inputs: _containers.ScalarMap[str, str]
    def __init__(self, points: _Optional[_Iterable[_Union[CurvePoint, _Mapping]]] = ..., envelope: _Optional[_Iterable[_Union[EnvelopePoint, _Mapping]]] = ..., recommended_sizes: _Optional[_Iterable[int]] = ..., minimum_gpus: _Optional[int] = ..., minimum_proven: _Optional[bool] = ..., valid_until: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ..., spare: _Optional[_Iterable[_Union[CurvePoint, _Mapping]]] = ..., model: _Optional[str] = ..., termination: _Optional[_Union[_plan_pb2.PlanTermination, _Mapping]] = ..., inputs: _Optional[_Mapping[str, str]] = ...) -> None: ...
