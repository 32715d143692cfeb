"""Profile CSV: one row a layer (more for other degrees), read into a ``Model`` and written back.

Every refusal is a ``ProfileError`` (a ``GraphError`` for self-loops, order and cycles) with file,
line, column, value, what was expected and the nearest fix.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import FileFormatError, GraphError, InputError, ProfileError
from planner.formats.profile_columns import LABELS, Columns, read_header, suggestions
from planner.formats.profile_rows import Row, read_cost, read_pin, time_column
from planner.formats.profile_writer import write_profile
from planner.formats.spelling import nearest
from planner.formats.text_files import decode, read_text
from planner.formats.topology import find_cycle
from planner.specs import Layer, LayerCost, Model, Precision

__all__ = ["MAX_ROWS", "read_profile", "write_profile"]

MAX_ROWS = 200_000
"""Rows a profile may have; larger files are refused before they are parsed."""


@dataclass
class _Draft:
    """A layer while its rows are collected."""

    name: str
    row: Row
    labels: dict[str, str]
    costs: list[LayerCost] = field(default_factory=list)
    lines: dict[tuple[object, ...], int] = field(default_factory=dict)


def read_profile(
    path: Path | None,
    text: str | None = None,
    *,
    name: str | None = None,
    precision: Precision = Precision.BF16,
) -> tuple[Model, tuple[str, ...]]:
    """Read a profile CSV.

    Parameters
    ----------
    path
        The file; None where ``text`` comes from standard input.
    text
        Its content, where the caller already has it.
    name
        Name of the model (default: the file's name without its suffix).
    precision
        Format of the profiled weights; parameters = parameter_bytes / its weight_bytes.

    Returns
    -------
    model, warnings
        Warnings are sentences for people: columns that are not used.

    Raises
    ------
    ProfileError
        Anything that cannot be read one way only, with file, line, column and the nearest fix.
    GraphError
        A layer that reads itself, a layer before its input, a cycle.
    FileFormatError
        Missing, unreadable, too large, or no UTF-8 text.

    Examples
    --------
    >>> text = '''name,forward_us,backward_us,parameter_kib,activation_bytes,output_bytes
    ... embed,1234,2468,4,10,10
    ... head,1,2,4,10,10
    ... '''
    >>> model, warnings = read_profile(None, text, name="small")
    >>> model.layers[0].costs[0].forward_ms, model.layers[1].inputs
    (1.234, ('embed',))
    """
    file = "<stdin>" if path is None else str(path)
    if text is None:
        if path is None:
            raise FileFormatError("neither a path nor text was given")
        text = read_text(path)
    elif text.startswith("\ufeff") or "\0" in text:
        text = decode(text.encode("utf-8", "surrogatepass"), file)
    _refuse_size(text, file)
    rows = _rows(text, file)
    columns = next(rows).columns
    warnings = suggestions(columns)
    drafts = _collect(rows)
    if not drafts:
        raise ProfileError(
            "has a header and no rows", file=file, line=2, expected="one row a layer"
        )
    layers = _layers(drafts, columns)
    lengths = {cost.sequence_length for layer in layers for cost in layer.costs}
    model = Model(
        name=name or ("profile" if path is None else path.stem),
        layers=layers,
        precision=precision,
        sequence_length=lengths.pop() if len(lengths) == 1 else None,
        source=f"profile {'standard input' if path is None else path.name}",
    )
    return model, warnings


def _refuse_size(text: str, file: str) -> None:
    # The line break after the header makes up for the missing one after the last row.
    body = text.rstrip("\r\n")
    rows = max(body.count("\n"), body.count("\r"))
    if rows > MAX_ROWS:
        raise ProfileError(
            f"has {rows:,} rows",
            file=file,
            expected=f"at most {MAX_ROWS:,} rows",
            fix="give one row a layer, not one a sample or operation",
        )


def _rows(text: str, file: str) -> Iterator[Row]:
    """The header as a row of its own, then each record; blank lines only at the end."""
    if not text.strip():
        raise ProfileError("is empty", file=file, expected="a header and one row a layer")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: Columns | None = None
    blank: int | None = None
    line = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ProfileError(
                f"cannot be read as CSV: {error}",
                file=file,
                line=line,
                expected='fields separated by commas, quoted as "a, b"',
                fix="check the quotes of this line",
            ) from None
        if not any(cell.strip() for cell in cells) and len(cells) <= 1:
            blank = blank or line
        elif blank is not None:
            raise ProfileError(
                "is a blank line between rows",
                file=file,
                line=blank,
                expected="one row a layer",
                fix="remove the line",
            )
        elif columns is None:
            columns = read_header(cells, file, line)
            yield Row(cells, columns, file, line)
        else:
            if len(cells) != columns.count:
                raise ProfileError(
                    f"the row has {len(cells)} fields",
                    file=file,
                    line=line,
                    expected=f"{columns.count}, as in the header",
                    fix="quote fields that contain a comma"
                    if len(cells) > columns.count
                    else "add the missing commas",
                )
            yield Row(cells, columns, file, line)
        line = reader.line_num + 1


def _collect(rows: Iterator[Row]) -> list[_Draft]:
    drafts: list[_Draft] = []
    by_name: dict[str, _Draft] = {}
    for row in rows:
        name = row.text("name")
        _check_name(name, row)
        draft = by_name.get(name)
        labels = {label: row.text(label) for label in LABELS}
        if draft is None:
            draft = by_name[name] = _Draft(name, row, labels)
            drafts.append(draft)
        elif draft is not drafts[-1]:
            raise row.error(
                f"is the name of the layer at line {draft.row.line} too",
                "name",
                value=name,
                expected="unique names, the rows of one layer next to each other",
                fix="rename the layer, or move the row to the others of its layer",
            )
        for label, value in labels.items():
            if value != draft.labels[label]:
                raise row.error(
                    f'differs from "{draft.labels[label]}" at line {draft.row.line} '
                    f"of the same layer {name}",
                    label,
                    value=value,
                    expected="the same in every row of a layer",
                    fix="correct one of the two, or rename the layer",
                )
        cost = read_cost(row, name)
        if draft.costs and (cost.forward_ms is None) != (draft.costs[0].forward_ms is None):
            raise row.error(
                f"layer {name} has times in one row and flops in another",
                "forward_flops" if cost.forward_ms is None else time_column(row, "forward"),
                expected="times in all rows of a layer, or flops in all",
                fix=f"see line {draft.row.line}",
            )
        key = (cost.tp, cost.microbatch_size, cost.sequence_length, cost.device)
        if key in draft.lines:
            raise row.error(
                f"is the name of the layer at line {draft.lines[key]} too, with the same tp, "
                "microbatch_size, sequence_length and device",
                "name",
                value=name,
                expected="unique names, or rows that differ in one of these",
                fix="rename the layer or remove the row",
            )
        draft.lines[key] = row.line
        draft.costs.append(cost)
    return drafts


def _check_name(name: str, row: Row) -> None:
    if not name:
        raise row.error("the cell is empty", "name", expected="a unique layer name")
    if ";" in name or not name.isprintable():
        raise row.error(
            "has a semicolon or a control character",
            "name",
            value=name.encode("unicode_escape").decode(),
            expected="a printable name without ;, which separates inputs",
            fix="rename the layer",
        )


def _layers(drafts: list[_Draft], columns: Columns) -> tuple[Layer, ...]:
    position = {draft.name: index for index, draft in enumerate(drafts)}
    inputs = [_inputs(drafts, index, columns, position) for index in range(len(drafts))]
    _check_order(drafts, inputs, position)
    return tuple(
        Layer(
            name=draft.name,
            type=draft.labels["type"] or "layer",
            inputs=inputs[index],
            trainable=draft.row.flag("trainable", True),
            tied_to=_reference(draft, "tied_to", position),
            pin_stage=read_pin(draft.row),
            colocate_with=_reference(draft, "with", position),
            costs=tuple(draft.costs),
        )
        for index, draft in enumerate(drafts)
    )


def _inputs(
    drafts: list[_Draft], index: int, columns: Columns, position: dict[str, int]
) -> tuple[str, ...]:
    if "inputs" not in columns.plain:
        return (drafts[index - 1].name,) if index else ()
    draft = drafts[index]
    cell = draft.labels["inputs"]
    names = tuple(part.strip() for part in cell.split(";")) if cell else ()
    for place, name in enumerate(names):
        if name == draft.name:
            raise draft.row.error(
                "reads itself",
                "inputs",
                kind=GraphError,
                value=name,
                expected="layers listed above this one",
                fix="remove the name from its own inputs",
            )
        if name not in position:
            raise _unknown(draft, "inputs", name, position)
        if name in names[:place]:
            raise draft.row.error(
                "is listed twice", "inputs", value=name, expected="each input once"
            )
    return names


def _unknown(draft: _Draft, column: str, name: str, position: dict[str, int]) -> InputError:
    similar = nearest(name, position)
    return draft.row.error(
        "is no layer of this profile" if name else "has an empty name between semicolons",
        column,
        value=name or draft.labels[column],
        expected="names of layers" + (", separated by ;" if column == "inputs" else ""),
        fix=f"did you mean {similar}?" if similar else None,
    )


def _reference(draft: _Draft, column: str, position: dict[str, int]) -> str | None:
    name = draft.labels[column]
    if not name:
        return None
    if name not in position:
        raise _unknown(draft, column, name, position)
    if name == draft.name:
        raise draft.row.error(
            "is the layer itself", column, value=name, expected="another layer, or an empty cell"
        )
    return name


def _check_order(
    drafts: list[_Draft], inputs: list[tuple[str, ...]], position: dict[str, int]
) -> None:
    """Refuse a layer above its input, as a cycle where it is one."""
    for index, names in enumerate(inputs):
        late = next((name for name in names if position[name] > index), None)
        if late is None:
            continue
        row = drafts[index].row
        cycle = find_cycle([[position[name] for name in sources] for sources in inputs])
        if cycle:
            shown = [drafts[node].name for node in (*cycle, cycle[0])]
            if len(shown) > 12:
                shown = [*shown[:6], "...", *shown[-5:]]
            first = drafts[cycle[0]].row
            raise first.error(
                f"the inputs form a cycle: {' -> '.join(shown)}",
                "inputs",
                kind=GraphError,
                expected="a graph without cycles",
                fix="remove one of these inputs",
            )
        raise row.error(
            f"is listed below, at line {drafts[position[late]].row.line}, "
            f"but layer {drafts[index].name} reads it",
            "inputs",
            kind=GraphError,
            value=late,
            expected="each layer after its inputs",
            fix=f"move the row of {drafts[index].name} below that of {late}",
        )
