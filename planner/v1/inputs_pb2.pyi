from planner.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModelFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_FORMAT_UNSPECIFIED: _ClassVar[ModelFormat]
    MODEL_FORMAT_PROFILE_CSV: _ClassVar[ModelFormat]
    MODEL_FORMAT_CONFIG_JSON: _ClassVar[ModelFormat]
    MODEL_FORMAT_PIPEDREAM_GRAPH: _ClassVar[ModelFormat]
    MODEL_FORMAT_MODEL_JSON: _ClassVar[ModelFormat]
MODEL_FORMAT_UNSPECIFIED: ModelFormat
MODEL_FORMAT_PROFILE_CSV: ModelFormat
MODEL_FORMAT_CONFIG_JSON: ModelFormat
MODEL_FORMAT_PIPEDREAM_GRAPH: ModelFormat
MODEL_FORMAT_MODEL_JSON: ModelFormat

class ModelSource(_message.Message):
    __slots__ = ("catalog_name", "text", "profile", "content_hash", "precision", "sequence_length")
    CATALOG_NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_HASH_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    catalog_name: str
    text: ModelText
    profile: LayerProfile
    content_hash: str
    precision: _common_pb2.Precision
    sequence_length: int
    def __init__(self, catalog_name: _Optional[str] = ..., text: _Optional[_Union[ModelText, _Mapping]] = ..., profile: _Optional[_Union[LayerProfile, _Mapping]] = ..., content_hash: _Optional[str] = ..., precision: _Optional[_Union[_common_pb2.Precision, str]] = ..., sequence_length: _Optional[int] = ...) -> None: ...

class ModelText(_message.Message):
    __slots__ = ("format", "text", "name")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    format: ModelFormat
    text: str
    name: str
    def __init__(self, format: _Optional[_Union[ModelFormat, str]] = ..., text: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class LayerProfile(_message.Message):
    __slots__ = ("name", "layers", "precision", "sequence_length")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    name: str
    layers: _containers.RepeatedCompositeFieldContainer[Layer]
    precision: _common_pb2.Precision
    sequence_length: int
    def __init__(self, name: _Optional[str] = ..., layers: _Optional[_Iterable[_Union[Layer, _Mapping]]] = ..., precision: _Optional[_Union[_common_pb2.Precision, str]] = ..., sequence_length: _Optional[int] = ...) -> None: ...

class Layer(_message.Message):
    __slots__ = ("name", "type", "inputs", "frozen", "tied_to", "pin_stage", "colocate_with", "costs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    TIED_TO_FIELD_NUMBER: _ClassVar[int]
    PIN_STAGE_FIELD_NUMBER: _ClassVar[int]
    COLOCATE_WITH_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    inputs: _containers.RepeatedScalarFieldContainer[str]
    frozen: bool
    tied_to: str
    pin_stage: int
    colocate_with: str
    costs: _containers.RepeatedCompositeFieldContainer[LayerCost]
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., inputs: _Optional[_Iterable[str]] = ..., frozen: _Optional[bool] = ..., tied_to: _Optional[str] = ..., pin_stage: _Optional[int] = ..., colocate_with: _Optional[str] = ..., costs: _Optional[_Iterable[_Union[LayerCost, _Mapping]]] = ...) -> None: ...

class LayerCost(_message.Message):
    __slots__ = ("tp", "microbatch_size", "sequence_length", "device", "forward_ms", "backward_ms", "weight_gradient_ms", "forward_flops", "backward_flops", "parameter_bytes", "activation_bytes", "output_bytes", "gradient_bytes", "checkpoint_bytes", "workspace_bytes", "collectives_included")
    TP_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FORWARD_MS_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_MS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_GRADIENT_MS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FLOPS_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_FLOPS_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVES_INCLUDED_FIELD_NUMBER: _ClassVar[int]
    tp: int
    microbatch_size: int
    sequence_length: int
    device: str
    forward_ms: float
    backward_ms: float
    weight_gradient_ms: float
    forward_flops: float
    backward_flops: float
    parameter_bytes: int
    activation_bytes: int
    output_bytes: int
    gradient_bytes: int
    checkpoint_bytes: int
    workspace_bytes: int
    collectives_included: bool
    def __init__(self, tp: _Optional[int] = ..., microbatch_size: _Optional[int] = ..., sequence_length: _Optional[int] = ..., device: _Optional[str] = ..., forward_ms: _Optional[float] = ..., backward_ms: _Optional[float] = ..., weight_gradient_ms: _Optional[float] = ..., forward_flops: _Optional[float] = ..., backward_flops: _Optional[float] = ..., parameter_bytes: _Optional[int] = ..., activation_bytes: _Optional[int] = ..., output_bytes: _Optional[int] = ..., gradient_bytes: _Optional[int] = ..., checkpoint_bytes: _Optional[int] = ..., workspace_bytes: _Optional[int] = ..., collectives_included: _Optional[bool] = ...) -> None: ...

class ClusterSource(_message.Message):
    __slots__ = ("catalog_name", "text", "cluster_json", "node_count", "price_per_gpu_hour")
    CATALOG_NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_JSON_FIELD_NUMBER: _ClassVar[int]
    NODE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_GPU_HOUR_FIELD_NUMBER: _ClassVar[int]
    catalog_name: str
    text: str
    cluster_json: str
    node_count: int
    price_per_gpu_hour: float
    def __init__(self, catalog_name: _Optional[str] = ..., text: _Optional[str] = ..., cluster_json: _Optional[str] = ..., node_count: _Optional[int] = ..., price_per_gpu_hour: _Optional[float] = ...) -> None: ...

class DegreePins(_message.Message):
    __slots__ = ("dp", "pp", "tp", "vpp", "microbatch_size")
    DP_FIELD_NUMBER: _ClassVar[int]
    PP_FIELD_NUMBER: _ClassVar[int]
    TP_FIELD_NUMBER: _ClassVar[int]
    VPP_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    dp: int
    pp: int
    tp: int
    vpp: int
    microbatch_size: int
    def __init__(self, dp: _Optional[int] = ..., pp: _Optional[int] = ..., tp: _Optional[int] = ..., vpp: _Optional[int] = ..., microbatch_size: _Optional[int] = ...) -> None: ...

class Training(_message.Message):
    __slots__ = ("global_batch_size", "sequence_length", "precision", "optimizer", "sharded_optimizer", "sequence_parallel", "flash_attention", "overlap_gradient_reduction", "schedules", "all_synchronous_schedules", "recompute", "sends", "pins", "allow_fewer", "allow_cross_domain", "max_microbatch_size")
    GLOBAL_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    SHARDED_OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    FLASH_ATTENTION_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_GRADIENT_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    ALL_SYNCHRONOUS_SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTE_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FEWER_FIELD_NUMBER: _ClassVar[int]
    ALLOW_CROSS_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    MAX_MICROBATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    global_batch_size: int
    sequence_length: int
    precision: _common_pb2.Precision
    optimizer: _common_pb2.Optimizer
    sharded_optimizer: bool
    sequence_parallel: bool
    flash_attention: bool
    overlap_gradient_reduction: bool
    schedules: _containers.RepeatedScalarFieldContainer[_common_pb2.Schedule]
    all_synchronous_schedules: bool
    recompute: _containers.RepeatedScalarFieldContainer[_common_pb2.Recompute]
    sends: _common_pb2.Sends
    pins: DegreePins
    allow_fewer: bool
    allow_cross_domain: bool
    max_microbatch_size: int
    def __init__(self, global_batch_size: _Optional[int] = ..., sequence_length: _Optional[int] = ..., precision: _Optional[_Union[_common_pb2.Precision, str]] = ..., optimizer: _Optional[_Union[_common_pb2.Optimizer, str]] = ..., sharded_optimizer: _Optional[bool] = ..., sequence_parallel: _Optional[bool] = ..., flash_attention: _Optional[bool] = ..., overlap_gradient_reduction: _Optional[bool] = ..., schedules: _Optional[_Iterable[_Union[_common_pb2.Schedule, str]]] = ..., all_synchronous_schedules: _Optional[bool] = ..., recompute: _Optional[_Iterable[_Union[_common_pb2.Recompute, str]]] = ..., sends: _Optional[_Union[_common_pb2.Sends, str]] = ..., pins: _Optional[_Union[DegreePins, _Mapping]] = ..., allow_fewer: _Optional[bool] = ..., allow_cross_domain: _Optional[bool] = ..., max_microbatch_size: _Optional[int] = ...) -> None: ...
