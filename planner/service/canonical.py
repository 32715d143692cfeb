"""At the front: what a request asks, whatever its id, deadline and spelling; and what it may ask.

Everything here reads messages alone. No model is parsed and no solver imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError, Message

from planner.messages.inputs import content_hash
from planner.service import errors
from planner.service.layer_counts import layers_sent
from planner.service.settings import ServiceSettings
from planner.v1 import inputs_pb2, plan_pb2
from planner.v1 import planner_service_pb2 as pb

__all__ = ["Needs", "check_limits", "needs_of", "parse", "request_hash"]

_HASH_DIGITS = 32


def parse(kind: type[Any], data: bytes) -> Any:
    """A request message from its bytes.

    Raises
    ------
    ServiceError
        The bytes are no such message (INVALID_ARGUMENT, where the library would end the call
        with INTERNAL).
    """
    try:
        return kind.FromString(data)
    except (DecodeError, RecursionError, ValueError):
        raise errors.invalid("", f"the bytes are no {kind.DESCRIPTOR.full_name}") from None


def request_hash(method: str, request: Message, version: str) -> str:
    """Hash of all that an answer depends on: the same question, the same hash.

    The id of the request, its pins and its limits of wall time and memory do not change a
    finished answer, and do not enter; deterministic work does. A model sent inline hashes as the
    same model by its content hash.

    Parameters
    ----------
    version
        Of the planner and its catalog.
    """
    asked = type(request)()
    asked.CopyFrom(request)
    for name in ("request_id", "expected", "validate_only"):
        if name in asked.DESCRIPTOR.fields_by_name:
            asked.ClearField(name)
    if "limits" in asked.DESCRIPTOR.fields_by_name and asked.HasField("limits"):
        work = asked.limits.work_node_count  # type: ignore[attr-defined]
        asked.ClearField("limits")
        if work:
            asked.limits.work_node_count = work  # type: ignore[attr-defined]
    for source in _messages(asked, inputs_pb2.ModelSource):
        if source.WhichOneof("source") in ("text", "profile"):
            source.content_hash = content_hash(source)
    digest = hashlib.sha256(f"{method}\0{version}\0".encode())
    digest.update(asked.SerializeToString(deterministic=True))
    return digest.hexdigest()[:_HASH_DIGITS]


@dataclass
class Needs:
    """What the store has to give before a request can be answered."""

    model_hashes: set[str] = field(default_factory=set)
    plan_ids: set[str] = field(default_factory=set)


def needs_of(request: Message) -> Needs:
    """Models by content hash and plans by id that a request refers to."""
    found = Needs()
    for source in _messages(request, inputs_pb2.ModelSource):
        if source.WhichOneof("source") == "content_hash":
            found.model_hashes.add(source.content_hash)
    for source in _messages(request, plan_pb2.PlanSource):
        if source.WhichOneof("source") == "plan_id":
            found.plan_ids.add(source.plan_id)
    return found


def check_limits(request: Message, settings: ServiceSettings) -> None:
    """Refuse what is larger than this server takes, before anybody reads it in full.

    Raises
    ------
    ServiceError
        Naming the setting.
    """
    for source in _messages(request, inputs_pb2.ModelSource):
        count = layers_sent(source, settings.max_layers)
        if count > settings.max_layers:
            raise errors.limit_exceeded("max_layers", settings.max_layers, count, "model")
    for question in _messages(request, pb.CurveQuestion):
        count = len(question.allocations)
        if question.HasField("size_range"):
            sizes = question.size_range
            if sizes.step > 0:
                count += max(0, sizes.max_gpus - sizes.min_gpus) // sizes.step + 1
        if count > settings.max_sizes:
            raise errors.limit_exceeded("max_sizes", settings.max_sizes, count, "question")
    limits = getattr(request, "limits", None)
    if limits is not None:
        if limits.work_node_count > settings.max_work_nodes:
            raise errors.limit_exceeded(
                "max_work_nodes",
                settings.max_work_nodes,
                limits.work_node_count,
                "limits.work_node_count",
            )
        for name in ("work_node_count", "wall_time_s", "memory_bytes"):
            value = getattr(limits, name)
            if value < 0 or value != value:
                raise errors.invalid(f"limits.{name}", f"{value} is negative")
        if limits.memory_bytes > settings.worker_memory_bytes:
            raise errors.limit_exceeded(
                "worker_memory_bytes",
                settings.worker_memory_bytes,
                limits.memory_bytes,
                "limits.memory_bytes",
            )
    request_id = getattr(request, "request_id", "")
    if len(request_id) > 128:
        raise errors.invalid("request_id", "is longer than 128 characters")


def _messages(message: Message, kind: type[Any]) -> Iterator[Any]:
    """All messages of a kind inside one, itself included."""
    if isinstance(message, kind):
        yield message
        return
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        if descriptor.message_type.GetOptions().map_entry:
            if descriptor.message_type.fields_by_name["value"].message_type is not None:
                for item in value.values():
                    yield from _messages(item, kind)
        elif descriptor.is_repeated:
            for item in value:
                yield from _messages(item, kind)
        else:
            yield from _messages(value, kind)
