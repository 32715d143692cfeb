"""Models, clusters and training set-ups as messages, and back.

Nothing here opens a file that a message names: a name is looked up in the catalog alone.
"""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import ValidationError

from planner.errors import ClusterError, FileFormatError, InputError
from planner.formats import catalog
from planner.formats.cluster_file import parse_cluster_text
from planner.formats.models import parse_model
from planner.formats.plan_file import plain_problem
from planner.messages.convert import enum_name, enum_of, read_fields
from planner.messages.fields import RequestError, at_field
from planner.schedule_rules import AUTOMATIC
from planner.specs import (
    Cluster,
    Layer,
    LayerCost,
    Model,
    Objective,
    Pins,
    Precision,
    Recompute,
    Schedule,
    Sends,
    Training,
)
from planner.v1 import common_pb2, inputs_pb2

__all__ = [
    "cluster_of",
    "cluster_source",
    "content_hash",
    "model_of",
    "model_source",
    "objective_of",
    "optimizer_of",
    "precision_of",
    "recompute_of",
    "schedules_of",
    "sends_of",
    "training_message",
    "training_options",
]

_KINDS = {
    inputs_pb2.MODEL_FORMAT_PROFILE_CSV: "profile",
    inputs_pb2.MODEL_FORMAT_CONFIG_JSON: "config",
    inputs_pb2.MODEL_FORMAT_PIPEDREAM_GRAPH: "pipedream",
}
_LARGEST_PRICE = 10**9
_ENUMS = common_pb2.DESCRIPTOR.enum_types_by_name


# --- models --------------------------------------------------------------------------------------


def content_hash(source: inputs_pb2.ModelSource) -> str:
    """Hash of a model's content as sent (SHA-256, hexadecimal): what PutModel answers."""
    return hashlib.sha256(source.SerializeToString(deterministic=True)).hexdigest()


def model_source(model: Model | str) -> inputs_pb2.ModelSource:
    """A model as a source: a catalog name, or a model with all it holds."""
    if isinstance(model, str):
        return inputs_pb2.ModelSource(catalog_name=model)
    return inputs_pb2.ModelSource(
        text=inputs_pb2.ModelText(
            format=inputs_pb2.MODEL_FORMAT_MODEL_JSON,
            text=model.model_dump_json(exclude_none=True),
            name=model.name,
        )
    )


def model_of(source: inputs_pb2.ModelSource) -> tuple[Model, tuple[str, ...]]:
    """The model that a source without a content hash holds, and warnings about it.

    Raises
    ------
    RequestError
        With the field inside the source.
    """
    precision = precision_of(source.precision)
    length = _positive(source.sequence_length, "sequence_length")
    kind = source.WhichOneof("source")
    if kind == "catalog_name":
        with at_field("catalog_name"):
            model = catalog.load_model(source.catalog_name, precision=precision)
        return _with_length(model, length), ()
    if kind == "text":
        with at_field("text"):
            return _model_of_text(source.text, precision, length)
    if kind == "profile":
        with at_field("profile"):
            return _model_of_profile(source.profile, precision), ()
    raise RequestError("", "no model is given")


def _with_length(model: Model, length: int | None) -> Model:
    if length is None or not model.is_analytic:
        return model
    return model.model_copy(update={"sequence_length": length})


def _model_of_text(
    text: inputs_pb2.ModelText, precision: Precision | None, length: int | None
) -> tuple[Model, tuple[str, ...]]:
    if not text.text.strip():
        raise RequestError("text", "is empty")
    if text.format == inputs_pb2.MODEL_FORMAT_MODEL_JSON:
        try:
            model = Model.model_validate_json(text.text)
        except ValidationError as error:
            raise RequestError("text", plain_problem(error), FileFormatError.reason) from None
        if precision is not None:
            model = model.model_copy(update={"precision": precision})
        return _with_length(model, length), ()
    kind = _KINDS.get(text.format)
    if kind is None:
        raise RequestError("format", "no known format of a model is given")
    name = text.name or "model"
    with at_field("text"):
        return parse_model(
            text.text, kind=kind, name=name, precision=precision, sequence_length=length
        )


def _model_of_profile(profile: inputs_pb2.LayerProfile, precision: Precision | None) -> Model:
    if not profile.layers:
        raise RequestError("layers", "holds no layer")
    chain = not any(layer.inputs for layer in profile.layers)
    layers = []
    for index, message in enumerate(profile.layers):
        with at_field(f"layers[{index}]"):
            fields = read_fields(message, Layer)
            if message.frozen:
                fields["trainable"] = False
            for name in ("type", "tied_to", "colocate_with"):
                if not fields.get(name):
                    fields.pop(name, None)
            fields["costs"] = tuple(_cost(row, at) for at, row in enumerate(message.costs))
            if chain and index:
                fields["inputs"] = (profile.layers[index - 1].name,)
            layers.append(Layer(**fields))
    own = precision_of(profile.precision)
    return Model(
        name=profile.name or "model",
        layers=tuple(layers),
        precision=precision or own or Precision.BF16,
        sequence_length=_positive(profile.sequence_length, "sequence_length"),
    )


def _cost(message: inputs_pb2.LayerCost, index: int) -> LayerCost:
    with at_field(f"costs[{index}]"):
        fields = read_fields(message, LayerCost)
        for name in ("tp", "microbatch_size", "sequence_length", "device"):
            if not fields.get(name):
                fields.pop(name, None)
        if "forward_ms" not in fields and "forward_flops" not in fields:
            raise RequestError("forward_ms", "is missing; give times or work (forward_flops)")
        return LayerCost(**fields)


# --- clusters ------------------------------------------------------------------------------------


def cluster_source(cluster: Cluster | str) -> inputs_pb2.ClusterSource:
    """A cluster as a source: a catalog name (``name:nodes``), or all of it."""
    if isinstance(cluster, str):
        return inputs_pb2.ClusterSource(catalog_name=cluster)
    return inputs_pb2.ClusterSource(cluster_json=cluster.model_dump_json())


def cluster_of(source: inputs_pb2.ClusterSource) -> Cluster:
    """The cluster that a source holds.

    Raises
    ------
    RequestError
        With the field inside the source.
    """
    kind = source.WhichOneof("source")
    if kind == "catalog_name":
        with at_field("catalog_name"):
            cluster = catalog.load_cluster(source.catalog_name)
    elif kind == "text":
        with at_field("text"):
            cluster = parse_cluster_text(source.text, file="<stdin>", name="cluster")
    elif kind == "cluster_json":
        try:
            cluster = Cluster.model_validate_json(source.cluster_json)
        except ValidationError as error:
            raise RequestError("cluster_json", plain_problem(error), ClusterError.reason) from None
    else:
        raise RequestError("", "no cluster is given")
    changes: dict[str, object] = {}
    nodes = _positive(source.node_count, "node_count")
    if nodes is not None:
        changes["nodes"] = nodes
    if source.HasField("price_per_gpu_hour"):
        if not 0 < source.price_per_gpu_hour <= _LARGEST_PRICE:
            raise RequestError(
                "price_per_gpu_hour", f"is no price; expected dollars > 0, at most {_LARGEST_PRICE}"
            )
        changes["price_per_gpu_hour"] = source.price_per_gpu_hour
    if not changes:
        return cluster
    with at_field("node_count"):
        return Cluster.model_validate({**dict(cluster), **changes})


# --- training ------------------------------------------------------------------------------------


def training_message(training: Training) -> inputs_pb2.Training:
    """A training set-up as a message."""
    message = inputs_pb2.Training(
        global_batch_size=training.global_batch_size,
        sequence_length=training.sequence_length,
        precision=_number(training.precision),  # type: ignore[arg-type]
        optimizer=f"OPTIMIZER_{training.optimizer.upper()}",
        sharded_optimizer=training.sharded_optimizer,
        sequence_parallel=training.sequence_parallel,
        flash_attention=training.flash_attention,
        overlap_gradient_reduction=training.overlap_gradient_reduction,
        schedules=[_number(schedule) for schedule in training.schedules],  # type: ignore[misc]
        recompute=[_number(mode) for mode in training.recompute],  # type: ignore[misc]
        sends=_number(training.sends),  # type: ignore[arg-type]
        allow_fewer=training.allow_fewer,
        allow_cross_domain=training.allow_cross_domain,
        max_microbatch_size=training.max_microbatch_size,
    )
    for name, value in training.pins:
        if value is not None:
            setattr(message.pins, name, value)
    return message


def training_options(message: inputs_pb2.Training) -> dict[str, Any]:
    """Keyword arguments of ``planner.plan`` that a training message sets.

    ``global_batch_size`` and ``sequence_length`` are among them; absent ones are left out, so that
    the library's defaults hold.

    Raises
    ------
    RequestError
        A number that no enum has.
    """
    options: dict[str, Any] = {}
    for name in ("global_batch_size", "sequence_length", "max_microbatch_size"):
        value = getattr(message, name)
        if value:
            options[name] = value
    precision = precision_of(message.precision)
    if precision is not None:
        options["precision"] = precision
    if message.optimizer:
        options["optimizer"] = optimizer_of(message.optimizer)
    for name in (
        "sharded_optimizer",
        "sequence_parallel",
        "flash_attention",
        "overlap_gradient_reduction",
        "allow_fewer",
    ):
        if message.HasField(name):
            options[name] = getattr(message, name)
    schedules = schedules_of(message.schedules, message.all_synchronous_schedules)
    if schedules:
        options["schedules"] = schedules
    recompute = recompute_of(message.recompute)
    if recompute:
        options["recompute"] = recompute
    sends = sends_of(message.sends)
    if sends is not None:
        options["sends"] = sends
    if message.allow_cross_domain:
        options["allow_cross_domain"] = True
    with at_field("pins"):
        options.update(read_fields(message.pins, Pins))
    return options


def precision_of(number: int) -> Precision | None:
    """A precision by number; None where none is given."""
    with at_field("precision"):
        found: Precision | None = _optional(number, Precision, "Precision")
    return found


def sends_of(number: int) -> Sends | None:
    """How sends behave, by number; None where nothing is said."""
    with at_field("sends"):
        found: Sends | None = _optional(number, Sends, "Sends")
    return found


def optimizer_of(number: int) -> str:
    """Name of an optimizer from its number."""
    try:
        return str(common_pb2.Optimizer.Name(number)).removeprefix("OPTIMIZER_").lower()
    except ValueError:
        raise RequestError("optimizer", f"{number} is no Optimizer") from None


def schedules_of(
    numbers: Any, automatic: bool, *, keep_doubles: bool = False
) -> tuple[Schedule, ...]:
    """Schedules by number, and all synchronous ones where those are asked for."""
    found = []
    for index, number in enumerate(numbers):
        with at_field(f"schedules[{index}]"):
            found.append(_member(number, Schedule, "Schedule"))
    if automatic:
        found += [schedule for schedule in AUTOMATIC if schedule not in found]
    return tuple(found if keep_doubles else dict.fromkeys(found))


def recompute_of(numbers: Any) -> tuple[Recompute, ...]:
    """Recompute modes by number."""
    found = []
    for index, number in enumerate(numbers):
        with at_field(f"recompute[{index}]"):
            found.append(_member(number, Recompute, "Recompute"))
    return tuple(dict.fromkeys(found))


def objective_of(number: int, default: Objective) -> Objective:
    """An objective by number."""
    with at_field("objective"):
        return _optional(number, Objective, "Objective") or default


# --- helpers -------------------------------------------------------------------------------------


def _number(member: Any) -> int:
    return enum_name(member, _ENUMS[type(member).__name__])


def _member(number: int, kind: Any, name: str) -> Any:
    try:
        return enum_of(number, kind, _ENUMS[name])
    except ValueError as error:
        raise InputError(str(error)) from None


def _optional(number: int, kind: Any, name: str) -> Any:
    return _member(number, kind, name) if number else None


def _positive(value: int, field: str) -> int | None:
    if value < 0:
        raise RequestError(field, f'"{value}" is negative')
    return value or None
