"""One record of a profile CSV: its cells as numbers, degrees and flags, or one clear error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from planner.errors import InputError, ProfileError
from planner.formats.profile_columns import (
    Columns,
    Unit,
    milliseconds,
    parse_number,
    whole_bytes,
)
from planner.formats.spelling import nearest
from planner.specs import LayerCost, Origin

__all__ = ["Row", "read_cost", "read_pin", "time_column"]

_DIGITS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Row:
    """Cells of one record with the place they come from."""

    cells: list[str]
    columns: Columns
    file: str
    line: int

    def error(
        self,
        problem: str,
        column: str | None = None,
        *,
        kind: type[InputError] = ProfileError,
        value: str | None = None,
        expected: str | None = None,
        fix: str | None = None,
    ) -> InputError:
        """An error at this row, ready to be raised."""
        place = {"file": self.file, "line": self.line, "column": column}
        return kind(problem, **place, value=value, expected=expected, fix=fix)  # type: ignore[arg-type]

    def text(self, column: str) -> str:
        """A plain cell without blanks around it; empty where the column is absent."""
        position = self.columns.plain.get(column)
        return "" if position is None else self.cells[position].strip()

    def number(self, column: str, text: str) -> Decimal:
        """A number >= 0 of a cell, exactly as written."""
        return parse_number(text, partial(self.error, column=column, value=text or None))

    def quantity(self, base: str) -> tuple[str, Unit] | None:
        """Text and unit of a quantity's cell; None where there is no column or it is empty."""
        unit = self.columns.quantities.get(base)
        text = "" if unit is None else self.cells[unit.position].strip()
        return (text, unit) if text and unit is not None else None

    def time_ms(self, base: str) -> float | None:
        """Milliseconds of a time cell, None where empty."""
        found = self.quantity(base)
        if found is None:
            return None
        text, unit = found
        return milliseconds(self.number(unit.column, text), unit)

    def size_bytes(self, base: str) -> int | None:
        """Bytes of a size cell, None where empty."""
        found = self.quantity(base)
        if found is None:
            return None
        text, unit = found
        refuse = partial(self.error, column=unit.column, value=text)
        return whole_bytes(parse_number(text, refuse), unit, refuse)

    def required_bytes(self, base: str) -> int:
        """Bytes of a size cell that may not be empty."""
        size = self.size_bytes(base)
        if size is None:
            raise self.error(
                "the cell is empty",
                self.columns.quantities[base].column,
                expected="a number >= 0",
                fix="write 0 if there is none",
            )
        return size

    def degree(self, column: str) -> int | None:
        """A whole number >= 1, None where empty."""
        text = self.text(column)
        if not text:
            return None
        if not _DIGITS.fullmatch(text) or int(text) < 1:
            raise self.error(
                "is not a whole number >= 1",
                column,
                value=text,
                expected="a whole number between 1 and 999,999,999",
                fix="leave the cell empty for the default",
            )
        return int(text)

    def flag(self, column: str, default: bool) -> bool:
        """A cell that says true or false, ``default`` where empty."""
        text = self.text(column)
        if text.lower() not in {"", "true", "false"}:
            raise self.error(
                "is neither true nor false", column, value=text, expected="true or false"
            )
        return default if not text else text.lower() == "true"

    def origin(self) -> Origin:
        """Where the row's figures come from, measured where the cell is empty."""
        text = self.text("origin")
        known = [origin.value for origin in Origin]
        if text.lower() not in {"", *known}:
            similar = nearest(text.lower(), known)
            raise self.error(
                "is no origin of a figure",
                "origin",
                value=text,
                expected=f"{', '.join(known[:-1])} or {known[-1]}",
                fix=f"did you mean {similar}?"
                if similar
                else "leave the cell empty for measured figures",
            )
        return Origin(text.lower()) if text else Origin.MEASURED


def time_column(row: Row, base: str) -> str:
    """Name of the column that gives a time, as written in the header (``_ms`` where absent)."""
    unit = row.columns.quantities.get(base)
    return f"{base}_ms" if unit is None else unit.column


def _work(row: Row, name: str) -> dict[str, float | None]:
    """Times or FLOPs of a row: the one that is filled in, and never both."""
    forward, backward = row.time_ms("forward"), row.time_ms("backward")
    weight = row.time_ms("weight_gradient")
    flops = {
        column: float(row.number(column, row.text(column)))
        for column in ("forward_flops", "backward_flops")
        if row.text(column)
    }
    if (forward is not None or backward is not None) and flops:
        raise row.error(
            f"layer {name} has both times and flops",
            next(iter(flops)),
            value=row.text(next(iter(flops))),
            expected="times (forward, backward) or flops (forward_flops, backward_flops)",
            fix="empty the cells of one of the two",
        )
    if flops:
        if "forward_flops" not in flops:
            raise row.error(
                "the cell is empty", "forward_flops", expected="a number >= 0 beside backward_flops"
            )
        if weight is not None:
            raise row.error(
                f"layer {name} has flops, and the time of a part of its backward",
                time_column(row, "weight_gradient"),
                expected="an empty cell beside flops",
            )
        # Two matrix products in the backward for each of the forward.
        flops.setdefault("backward_flops", 2 * flops["forward_flops"])
        return dict(flops)
    for base, value in (("forward", forward), ("backward", backward)):
        if value is None and not {"forward", "backward"} & row.columns.quantities.keys():
            raise row.error(
                "the cell is empty",
                "forward_flops",
                expected="a number >= 0",
                fix="write 0 if the layer does no work",
            )
        if value is None:
            raise row.error(
                "the cell is empty" if base in row.columns.quantities else "is missing",
                time_column(row, base),
                expected="a time >= 0 (or forward_flops instead of times)",
                fix="write 0 if the layer takes none",
            )
    if weight is not None and backward is not None and weight > backward:
        unit = row.columns.quantities["weight_gradient"]
        raise row.error(
            f"is more than the whole backward ({backward!r} ms)",
            unit.column,
            value=row.cells[unit.position].strip(),
            expected="a part of the backward",
            fix="let the backward include the weight gradient",
        )
    return {"forward_ms": forward, "backward_ms": backward, "weight_gradient_ms": weight}


def read_cost(row: Row, name: str) -> LayerCost:
    """What one row says a layer costs.

    Raises
    ------
    ProfileError
        Any cell that is no number, degree, flag or origin; times and flops together, or neither; a
        weight gradient longer than its backward.
    """
    return LayerCost(
        tp=row.degree("tp") or 1,
        microbatch_size=row.degree("microbatch_size") or 1,
        sequence_length=row.degree("sequence_length"),
        device=row.text("device") or None,
        parameter_bytes=row.required_bytes("parameter"),
        activation_bytes=row.required_bytes("activation"),
        output_bytes=row.required_bytes("output"),
        gradient_bytes=row.size_bytes("gradient"),
        checkpoint_bytes=row.size_bytes("checkpoint"),
        workspace_bytes=row.size_bytes("workspace") or 0,
        collectives_included=row.flag("collectives_included", False),
        origin=row.origin(),
        **_work(row, name),
    )


def read_pin(row: Row) -> int | None:
    """Stage of a ``pin_stage`` cell (negative counts from the end), None where empty."""
    text = row.text("pin_stage")
    if not text:
        return None
    if not _DIGITS.fullmatch(text.removeprefix("-")):
        raise row.error(
            "is not a stage",
            "pin_stage",
            value=text,
            expected="a whole number: 0 is the first stage, -1 the last",
            fix="leave the cell empty for no pin",
        )
    return int(text)
