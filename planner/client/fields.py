"""Arguments into fields of messages; what does not go in is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message

from planner.client.options import AnyModel, KeptModel
from planner.errors import InputError
from planner.formats.spelling import did_you_mean
from planner.messages.convert import enum_name
from planner.messages.inputs import cluster_source, content_hash, model_source
from planner.messages.plans import plan_message
from planner.plans import Plan
from planner.schedule_rules import AUTOMATIC
from planner.specs import Cluster, Recompute, Schedule
from planner.v1 import common_pb2, inputs_pb2, plan_pb2

__all__ = [
    "Names",
    "cluster_argument",
    "is_catalog_name",
    "kept_model",
    "member_of",
    "model_argument",
    "number_of",
    "numbers_of",
    "plan_argument",
    "recompute_numbers",
    "refuse_no_schedule",
    "schedule_numbers",
    "set_field",
]

Member = TypeVar("Member", bound=Enum)
_FILE_ENDINGS = (".csv", ".json", ".yaml", ".yml", ".txt")
_PLAN_ID = re.compile(r"[0-9a-fA-F-]{16,}")
_ENUMS = common_pb2.DESCRIPTOR.enum_types_by_name


def set_field(message: Message, name: str, value: object, option: str | None = None) -> None:
    """Set a field, or extend a repeated one; None leaves it as it is.

    Raises
    ------
    InputError
        A value of another type, or out of the field's range.
    """
    if value is None:
        return
    try:
        if message.DESCRIPTOR.fields_by_name[name].is_repeated:
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    except (TypeError, ValueError):
        raise InputError(
            f"option {option or name}: is not usable", value=value, expected="a value in range"
        ) from None


def member_of(kind: type[Member], value: object, option: str) -> Member:
    """A member of an enum by value.

    Raises
    ------
    InputError
        None of them; the message lists them.
    """
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise InputError(f"is no {option}", value=value, expected=known) from None


def number_of(member: Any) -> Any:
    """Number of an enum member in the protocol."""
    return enum_name(member, _ENUMS[type(member).__name__])


def numbers_of(value: object) -> list[float] | None:
    """One number or several as a list."""
    if value is None:
        return None
    if isinstance(value, Iterable) and not isinstance(value, str):
        return list(value)
    return [value]  # type: ignore[list-item]


def schedule_numbers(value: object) -> tuple[list[Any], bool]:
    """Schedules by name as numbers, or that it is all automatic ones (``auto`` alone)."""
    found: list[Schedule] = []
    names = [str(getattr(name, "value", name)).strip().lower() for name in _listed(value)]
    if names == ["auto"]:
        return [], True
    known = [member.value for member in Schedule]
    for word in names:
        if word == "auto":
            found += AUTOMATIC
        elif word in known:
            found.append(Schedule(word))
        else:
            raise InputError(
                "is no schedule",
                value=word,
                expected=f"auto or one of {', '.join(known)}",
                fix=did_you_mean(word, known),
            )
    return list(dict.fromkeys(number_of(schedule) for schedule in found)), False


def recompute_numbers(value: object) -> list[Any]:
    """Recompute modes by name as numbers."""
    modes = [member_of(Recompute, name, "recompute mode") for name in _listed(value)]
    return list(dict.fromkeys(number_of(mode) for mode in modes))


def _listed(value: object) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, Enum):
        return [value]
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return list(value) if isinstance(value, Iterable) else [value]


class Names:
    """What the caller called things that were read from files, and what was said about them."""

    def __init__(self) -> None:
        self.inputs: dict[str, str] = {}
        self.warnings: list[str] = []
        self.kept: dict[str, inputs_pb2.ModelSource] = {}
        """Models that the server should have, by content hash, to be sent where it has not."""

    def restore(self, plan: Plan) -> Plan:
        """The plan under the caller's names, as the library's own would have them."""
        if not self.inputs:
            return plan
        return plan.model_copy(update={"inputs": {**plan.inputs, **self.inputs}})


def model_argument(model: AnyModel, names: Names) -> inputs_pb2.ModelSource:
    """A model as a source; a file is read here, as the server reads none."""
    if isinstance(model, KeptModel):
        if model.model is not None:
            names.kept[model.content_hash] = model_source(model.model)
        return inputs_pb2.ModelSource(content_hash=model.content_hash)
    if isinstance(model, str) and _names_file(model):
        from planner.formats.models import read_model

        names.inputs["model"] = model
        model, notes = read_model(model)
        names.warnings += notes
    return model_source(model)


def kept_model(model: AnyModel) -> KeptModel:
    """A model with its content hash; names are looked up here, as only content can be sent."""
    if isinstance(model, KeptModel):
        return model
    if isinstance(model, str):
        from planner.formats.models import read_model

        model, _ = read_model(model)
    return KeptModel(content_hash(model_source(model)), model)


def cluster_argument(cluster: Cluster | str, names: Names) -> inputs_pb2.ClusterSource:
    """A cluster as a source; a file is read here."""
    if isinstance(cluster, str) and _names_file(cluster):
        from planner.formats.cluster_file import read_cluster

        names.inputs["cluster"] = cluster
        cluster = read_cluster(cluster)
    return cluster_source(cluster)


def plan_argument(plan: Plan | str) -> plan_pb2.PlanSource:
    """A plan as a source: a plan or sketch, a plan file, or the id of a plan that is kept."""
    if isinstance(plan, str):
        if not _is_file(plan) and not plan.endswith(".json"):
            return plan_pb2.PlanSource(plan_id=plan)
        from planner.formats.plan_file import read_plan

        plan = read_plan(plan)
    if "layout" not in plan.model_fields_set:
        message = plan_message(plan)
        message.ClearField("layout")
        return plan_pb2.PlanSource(plan=message)
    # What a sketch leaves out is not what it says: the text keeps the two apart.
    return plan_pb2.PlanSource(plan_json=plan.model_dump_json(exclude_unset=True))


def refuse_no_schedule(text: str) -> None:
    """Refuse what is neither a plan file, nor the id of a plan, nor a schedule.

    Raises
    ------
    ScheduleError
        As ``planner.simulate`` has it.
    """
    if _PLAN_ID.fullmatch(text) or _is_file(text) or text.endswith(".json"):
        return
    from planner.studies.simulation import schedule_of

    schedule_of(text)


def is_catalog_name(model: AnyModel) -> bool:
    """Whether it is the server's to know what a name means."""
    return isinstance(model, str) and not _names_file(model)


def _names_file(text: str) -> bool:
    """Whether a text is a file, or can be nothing else: one that is missing is missing here."""
    return text.lower().endswith(_FILE_ENDINGS) or _is_file(text)


def _is_file(text: str) -> bool:
    try:
        path = Path(text)
        return path.is_file() or (path / "config.json").is_file()
    except (OSError, ValueError):
        return False
