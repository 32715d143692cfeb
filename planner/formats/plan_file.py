"""Plan files: read back what ``planner plan -o`` wrote, or a sketch (layout and layers alone)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from planner.errors import PlanFileError
from planner.formats.text_files import read_stream, read_text
from planner.plans import Plan

__all__ = ["read_plan"]


def read_plan(source: str, *, stdin: TextIO | None = None) -> Plan:
    """A plan from a JSON file (``-`` reads ``stdin``).

    Raises
    ------
    FileFormatError
        No such file, or no text.
    PlanFileError
        No JSON, or not a plan; the message names the field.
    """
    name = source
    if source == "-" and stdin is not None:
        text, name = read_stream(stdin), "<stdin>"
    else:
        text = read_text(Path(source))
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanFileError(f"is not JSON: {error.msg}", file=name, line=error.lineno) from None
    if not isinstance(document, dict) or "layout" not in document:
        raise PlanFileError("is no plan", file=name, expected='a JSON object with a "layout"')
    try:
        return Plan.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise PlanFileError(f"field {place}: {first['msg']}", file=name) from None
