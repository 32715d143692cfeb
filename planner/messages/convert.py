"""Messages to pydantic types and back, field by field by the same name.

A message and its type agree in their field names; enums agree in their member names behind the
prefix that proto style asks for (``SCHEDULE_ONE_F_ONE_B`` is ``Schedule.ONE_F_ONE_B``). What the
type leaves None is left out of the message; floats are doubles, so that nothing is rounded.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from pydantic import BaseModel

from planner.messages.fields import RequestError
from planner.plans import Certificate

__all__ = ["enum_name", "enum_of", "fill", "from_message", "read_fields", "to_message"]

Spec = TypeVar("Spec", bound=BaseModel)
Member = TypeVar("Member", bound=Enum)
M = TypeVar("M", bound=Message)


def to_message(spec: BaseModel, message: M) -> M:
    """Fill an empty message from a type of the library, and return it."""
    for name, write in _writers(type(spec), message.DESCRIPTOR):
        value = getattr(spec, name)
        if value is not None:
            write(message, value)
    return message


def from_message(message: Message, kind: type[Spec]) -> Spec:
    """A type of the library from a message; it is validated like any other input.

    Raises
    ------
    pydantic.ValidationError
        Values that the type does not take.
    RequestError
        A text that is no whole number, where the type has one.
    """
    return kind(**read_fields(message, kind))


def read_fields(message: Message, kind: type[BaseModel]) -> dict[str, Any]:
    """The fields of a type that a message sets; unset ones keep the type's defaults."""
    found: dict[str, Any] = {}
    for name, field, read in _readers(kind, message.DESCRIPTOR):
        if _is_repeated(field):
            value = getattr(message, name)
            if len(value):
                found[name] = read(value)
        elif field.has_presence:
            if message.HasField(name):
                found[name] = read(getattr(message, name))
        elif field.enum_type is not None:
            if getattr(message, name):
                found[name] = read(getattr(message, name))
        else:
            found[name] = read(getattr(message, name))
    return found


fill = to_message


_MOST_DIGITS = 60
_WHOLE = re.compile(rf"-?[0-9]{{1,{_MOST_DIGITS}}}")


# --- enums ---------------------------------------------------------------------------------------


def enum_name(member: Enum, descriptor: EnumDescriptor) -> int:
    """Number of an enum member in the protocol."""
    return _numbers(descriptor)[member.name]


def enum_of(number: int, kind: type[Member], descriptor: EnumDescriptor) -> Member:
    """Member of an enum from its number in the protocol.

    Raises
    ------
    ValueError
        A number that this version of the protocol does not have.
    """
    try:
        return kind[_names(descriptor)[number]]
    except KeyError:
        raise ValueError(f"{number} is no {descriptor.name}") from None


@cache
def _numbers(descriptor: EnumDescriptor) -> dict[str, int]:
    return {name: number for number, name in _names(descriptor).items()}


@cache
def _names(descriptor: EnumDescriptor) -> dict[int, str]:
    unspecified = descriptor.values_by_number[0].name
    prefix = unspecified.removesuffix("UNSPECIFIED")
    return {v.number: v.name.removeprefix(prefix) for v in descriptor.values if v.number}


# --- fields --------------------------------------------------------------------------------------

Write = Callable[[Any, Any], None]
Read = Callable[[Any], Any]


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


@cache
def _writers(kind: type[BaseModel], descriptor: Descriptor) -> list[tuple[str, Write]]:
    return [
        (name, _writer(name, descriptor.fields_by_name[name]))
        for name in kind.model_fields
        if name in descriptor.fields_by_name
    ]


def _writer(name: str, field: FieldDescriptor) -> Write:
    if field.full_name == "planner.v1.Certificate.witness":
        return _write_witness
    if field.full_name == "planner.v1.Stage.chunks":
        return _write_chunks
    if _is_map(field):
        return lambda message, value: getattr(message, name).update(value)
    if field.message_type is not None:
        if _is_repeated(field):

            def add_all(message: Any, value: Any) -> None:
                target = getattr(message, name)
                for item in value:
                    to_message(item, target.add())

            return add_all

        def write_one(message: Any, value: Any) -> None:
            target = getattr(message, name)
            target.SetInParent()
            to_message(value, target)

        return write_one
    plain = _plain_writer(field)
    if _is_repeated(field):
        return lambda message, value: getattr(message, name).extend([plain(v) for v in value])
    return lambda message, value: setattr(message, name, plain(value))


def _plain_writer(field: FieldDescriptor) -> Read:
    if field.enum_type is not None:
        numbers = _numbers(field.enum_type)
        return lambda value: numbers[value.name]
    if field.type == FieldDescriptor.TYPE_STRING:
        return lambda value: value.value if isinstance(value, Enum) else str(value)
    return lambda value: value


@cache
def _readers(
    kind: type[BaseModel], descriptor: Descriptor
) -> list[tuple[str, FieldDescriptor, Read]]:
    hints = typing.get_type_hints(kind)
    return [
        (name, descriptor.fields_by_name[name], _reader(descriptor.fields_by_name[name], hint))
        for name, hint in hints.items()
        if name in descriptor.fields_by_name and name in kind.model_fields
    ]


def _reader(field: FieldDescriptor, hint: Any) -> Read:
    name = field.name
    if field.full_name == "planner.v1.Certificate.witness":
        return _read_witness
    if field.full_name == "planner.v1.Stage.chunks":
        return lambda value: tuple(tuple(chunk.layers) for chunk in value)
    if _is_map(field):
        return dict
    inner = _inner(hint)
    if field.message_type is not None:
        if _is_repeated(field):
            return lambda value: tuple(_read_all(name, value, inner))

        def read_one(value: Any) -> Any:
            try:
                return from_message(value, inner)
            except RequestError as error:
                raise error.inside(name) from None

        return read_one
    plain = _plain_reader(field, inner)
    if _is_repeated(field):
        return lambda value: tuple(plain(item) for item in value)
    return plain


def _plain_reader(field: FieldDescriptor, inner: Any) -> Read:
    if field.enum_type is not None:
        names = _names(field.enum_type)
        # An unknown number stays one: the type then says what it would have taken.
        return lambda value: inner[names[value]] if value in names else str(value)
    if field.type == FieldDescriptor.TYPE_STRING and inner is int:
        return lambda value: _whole(value, field.name)
    return lambda value: value


def _read_all(name: str, messages: Any, inner: type[Spec]) -> Iterator[Spec]:
    for index, message in enumerate(messages):
        try:
            yield from_message(message, inner)
        except RequestError as error:
            raise error.inside(f"{name}[{index}]") from None


def _whole(text: str, name: str) -> int:
    """A whole number that travels as text, since it may be longer than 64 bits."""
    if not _WHOLE.fullmatch(text):
        shown = text if len(text) <= _MOST_DIGITS else f"{text[:_MOST_DIGITS]}..."
        raise RequestError(
            name, f'"{shown}" is no whole number; expected at most {_MOST_DIGITS} digits'
        )
    return int(text)


def _inner(hint: Any) -> Any:
    """The type behind Optional, tuple and Annotated."""
    while True:
        origin = typing.get_origin(hint)
        if origin is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif origin in (typing.Union, types.UnionType):
            hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
        elif origin is tuple:
            hint = typing.get_args(hint)[0]
        else:
            return hint


def _write_chunks(message: Any, value: tuple[tuple[str, ...], ...]) -> None:
    for layers in value:
        message.chunks.add().layers.extend(layers)


def _write_witness(message: Any, value: Mapping[str, int | str]) -> None:
    for key, item in value.items():
        if isinstance(item, int):
            message.witness[key].integer = str(item)
        else:
            message.witness[key].text = item


def _read_witness(value: Any) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for key, item in value.items():
        if item.WhichOneof("value") == "integer":
            found[key] = _whole(item.integer, f"witness[{key}].integer")
        else:
            found[key] = item.text
    return found


assert "witness" in Certificate.model_fields
