"""At the front: how many layers a model that is sent inline has, without making any of them.

Counted is what the reader of its format would make, whatever the spelling, and at the speed of a
text search where that is exact.
"""

from __future__ import annotations

import csv
import io
import json
import re

from planner.errors import InputError
from planner.formats.documents import MAX_DOCUMENT_BYTES
from planner.formats.huggingface import count_layers
from planner.v1 import inputs_pb2

__all__ = ["layers_sent"]

_NAME = re.compile(r'"name"\s*:')
_NODE = re.compile(r"^node[0-9]+ -- [^\n]* -- ", re.MULTILINE)


def layers_sent(source: inputs_pb2.ModelSource, most: int) -> int:
    """Layers of a model; 0 where it is not sent, or is nothing that its reader takes.

    Parameters
    ----------
    most
        Counting may end beyond it.

    Examples
    --------
    >>> text = '{"name": "m", "layers": [{"name" : "a"}, {"name": "b"}]}'
    >>> layers_sent(inputs_pb2.ModelSource(text=inputs_pb2.ModelText(
    ...     format=inputs_pb2.MODEL_FORMAT_MODEL_JSON, text=text)), 1)
    2
    """
    kind = source.WhichOneof("source")
    if kind == "profile":
        return len(source.profile.layers)
    if kind != "text":
        return 0
    count = {
        inputs_pb2.MODEL_FORMAT_MODEL_JSON: _of_model_json,
        inputs_pb2.MODEL_FORMAT_CONFIG_JSON: _of_config,
        inputs_pb2.MODEL_FORMAT_PIPEDREAM_GRAPH: _of_graph,
        inputs_pb2.MODEL_FORMAT_PROFILE_CSV: _of_profile,
    }.get(source.text.format)
    return 0 if count is None else count(source.text.text, most)


def _of_model_json(text: str, most: int) -> int:
    """A layer has a name, as the model has; and two braces at least, its own and its costs'."""
    if "\\u00" not in text:
        return max(0, len(_NAME.findall(text)) - 1)
    if text.count("{") // 2 <= most:
        return 0
    try:
        layers = json.loads(text)["layers"]  # keys are spelled with escapes, or may be
    except (ValueError, RecursionError, TypeError, KeyError):
        return 0
    return len(layers) if isinstance(layers, list) else 0


def _of_config(text: str, most: int) -> int:
    if len(text) > MAX_DOCUMENT_BYTES:
        return 0
    try:
        return count_layers(text)
    except InputError:
        return 0


def _of_graph(text: str, most: int) -> int:
    return len(_NODE.findall(text.removeprefix("\ufeff")))


def _of_profile(text: str, most: int) -> int:
    """Rows of one layer stand next to each other."""
    rows = max(text.count("\n"), text.count("\r"))
    if rows <= most:
        return rows
    count, before = 0, None
    try:
        reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
        at = [cell.strip() for cell in next(reader)].index("name")
        for cells in reader:
            name = cells[at].strip() if at < len(cells) else ""
            if name and name != before:
                count, before = count + 1, name
                if count > most:
                    break
    except (csv.Error, StopIteration, ValueError):
        pass  # its reader says what is wrong, as soon as it comes there
    return count
