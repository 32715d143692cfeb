"""JSON and YAML text to plain Python values, with the errors that a person can act on.

Refused, each with its place: text that is no JSON or YAML, a document that is not a mapping,
keys given twice, non-finite numbers, anchors and aliases (a few lines of them can unfold to
gigabytes), tags, and files over a megabyte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import yaml

from planner.errors import InputError
from planner.formats.spelling import did_you_mean

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "parse_json",
    "parse_yaml",
    "refuse_duplicates",
    "refuse_unknown_keys",
]

MAX_DOCUMENT_BYTES = 2**20

_INT = "tag:yaml.org,2002:int"
_MOST_DIGITS = 1000
"""Of a whole number: longer ones could not even be written into an error message."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _check_size(text: str, file: str, kind: type[InputError]) -> None:
    if len(text) > MAX_DOCUMENT_BYTES:
        raise kind("is too large", file=file, expected="at most 1 MiB")
    if not text.strip():
        raise kind("is empty", file=file, expected="a mapping of keys to values")


def parse_json(text: str, *, file: str, kind: type[InputError]) -> dict[str, Any]:
    """The object a JSON text holds; errors are raised as ``kind``."""
    text = text.removeprefix("\ufeff")
    _check_size(text, file, kind)

    def no_constant(name: str) -> None:
        raise kind("is not a finite number", file=file, value=name)

    try:
        hook = refuse_duplicates(file, kind)
        found = json.loads(text, object_pairs_hook=hook, parse_constant=no_constant)
    except json.JSONDecodeError as error:
        raise kind(
            f"is not JSON: {error.msg} at column {error.colno}", file=file, line=error.lineno
        ) from error
    except RecursionError as error:
        raise kind("is nested too deeply", file=file) from error
    except ValueError as error:  # an integer of thousands of digits
        raise kind("holds a number that is too long", file=file) from error
    if not isinstance(found, dict):
        raise kind(
            f"holds a JSON {type(found).__name__}",
            file=file,
            expected="an object of keys to values",
        )
    return found


def refuse_duplicates(
    file: str, kind: type[InputError]
) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """An ``object_pairs_hook`` that raises ``kind`` for a key given twice: readers differ in
    which of the two counts."""

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise kind("is given twice", file=file, key=key, fix="keep one of the two")
            found[key] = value
        return found

    return no_duplicates


def _refuse_surprises(node: Any, file: str, kind: type[InputError]) -> None:
    """Walk a YAML node tree; a node met twice is an alias."""
    seen: set[int] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        line = current.start_mark.line + 1
        if id(current) in seen:
            raise kind("uses a YAML alias", file=file, line=line, fix="write the value out")
        seen.add(id(current))
        if (
            isinstance(current, yaml.ScalarNode)
            and current.tag == _INT
            and len(current.value) > _MOST_DIGITS
        ):
            raise kind("holds a number that is too long", file=file, line=line)
        if isinstance(current, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in current.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise kind("has a key that is not a word", file=file, line=line)
                if key.value in keys:
                    raise kind(
                        "is given twice", file=file, line=key.start_mark.line + 1, key=key.value,
                        fix="keep one of the two",
                    )  # fmt: skip
                keys.add(key.value)
                stack.append(value)
        elif isinstance(current, yaml.SequenceNode):
            stack.extend(current.value)


def _constructed(loader: Any, node: Any, file: str, kind: type[InputError]) -> Any:
    """The value of a document.

    A scalar that is not what its tag or form says (``!!int ''``, ``2001-99-45``) makes its
    constructor raise whatever ``int`` or a table raises; which one it was is found by trying each.
    """
    try:
        return loader.construct_document(node)
    except (yaml.YAMLError, RecursionError, MemoryError):
        raise
    except Exception as error:
        for scalar in _scalars(node):
            try:
                yaml.SafeLoader("").construct_document(scalar)
            except Exception:
                raise kind(
                    f"is no {scalar.tag.rpartition(':')[2]}",
                    file=file,
                    line=scalar.start_mark.line + 1,
                    value=scalar.value[:80],
                    fix="quote it if it is text",
                ) from error
        raise kind("holds a value that cannot be read", file=file, line=1) from error


def _scalars(node: Any) -> Iterator[Any]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield from _scalars(value)


def parse_yaml(text: str, *, file: str, kind: type[InputError]) -> dict[str, Any]:
    """The mapping a YAML (or JSON) text holds; errors are raised as ``kind``."""
    text = text.removeprefix("\ufeff")
    _check_size(text, file, kind)
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise kind("is empty", file=file, expected="a mapping of keys to values")
            _refuse_surprises(node, file, kind)
            found = _constructed(loader, node, file, kind)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at column {mark.column + 1}" if mark else ""
        raise kind(
            f"is not YAML: {error.problem or error.context}{place}",
            file=file,
            line=mark.line + 1 if mark else None,
        ) from error
    except RecursionError as error:
        raise kind("is nested too deeply", file=file) from error
    except (yaml.YAMLError, ValueError) as error:
        raise kind(f"is not YAML: {str(error).splitlines()[0]}", file=file) from error
    if not isinstance(found, dict):
        raise kind(
            f"holds a single {type(found).__name__}",
            file=file,
            expected="a mapping of keys to values",
        )
    for key in found:
        if not isinstance(key, str):
            raise kind("is not a word", file=file, value=key, expected="a key")
    return found


def refuse_unknown_keys(
    document: Mapping[str, Any],
    known: Iterable[str],
    *,
    file: str,
    kind: type[InputError],
    under: str = "",
) -> None:
    """Raise ``kind`` for the first key that is not known, naming the nearest known one."""
    known = list(known)
    for key in document:
        if key not in known:
            raise kind(
                "is not a known key",
                file=file,
                key=f"{under}{key}",
                expected=f"one of {', '.join(known)}",
                fix=did_you_mean(str(key), known),
            )
