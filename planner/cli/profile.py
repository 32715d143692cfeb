"""``planner profile check|convert|from-config``."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import MOST_DEGREE, MOST_SAMPLES, Format, FormatOption, PrecisionOption
from planner.errors import InputError

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["profile_app"]

profile_app = typer.Typer(
    help="Check, convert and make layer profiles.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

SourceArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="Profile CSV, graph.txt, config.json, or -.")
]
CsvOutputOption = Annotated[
    str | None, typer.Option("-o", "--output", metavar="FILE", help="Default: standard output.")
]


@profile_app.command()
def check(
    file: SourceArgument,
    precision: PrecisionOption = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Read a profile, say what it holds and what is odd about it."""
    from planner.cli.output import emit_text, naming, print_view
    from planner.formats.models import read_model
    from planner.graph import contract
    from planner.specs import Origin

    model, warnings = read_model(file, stdin=sys.stdin, precision=precision)
    with naming(file):
        chain = contract(model)
    rows = [row for layer in model.layers for row in layer.costs]
    # FLOPs are no times: what they take is priced by formula, however they were counted.
    sources = [row.origin if row.forward_ms is not None else Origin.FORMULA for row in rows]
    origins = {origin.value: sources.count(origin) for origin in Origin if origin in sources}
    first_rows = [layer.costs[0] for layer in model.layers if layer.costs]
    facts: dict[str, object] = {
        "name": model.name,
        "layers": len(model.layers),
        "rows": len(rows),
        "blocks": len(chain.blocks),
        "chain": chain.is_chain,
        "splittable_blocks": [chain.names[block] for block in chain.splittable],
        "tp": sorted({row.tp for row in rows}),
        "microbatch_size": sorted({row.microbatch_size for row in rows}),
        "devices": sorted({row.device for row in rows if row.device}),
        "precision": model.precision.value,
        "measured": bool(rows) and set(origins) == {Origin.MEASURED},
        "origins": origins,
        "forward_ms": _total([row.forward_ms for row in first_rows]),
        "backward_ms": _total([row.backward_ms for row in first_rows]),
        "parameter_bytes": _total([row.parameter_bytes for row in first_rows]),
        "notes": list(chain.notes),
        "warnings": list(warnings),
    }
    if format is Format.JSON:
        emit_text(json.dumps(facts, indent=2) + "\n")
        return
    print_view(lambda width: _facts_view(facts, width))


def _total(values: Sequence[float | None]) -> float | None:
    """Sum over the first row of every layer; None where some layer has no such figure."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _rows_word(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _facts_view(facts: dict[str, object], width: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    from planner.report.text import wrap
    from planner.units import format_bytes, format_ms

    lines = []
    for key, value in facts.items():
        if value in ([], {}, None):
            continue
        if isinstance(value, bool):
            shown = "yes" if value else "no"
        elif isinstance(value, dict):
            shown = "; ".join(f"{name} {_rows_word(count)}" for name, count in value.items())
        elif isinstance(value, list):
            shown = "; ".join(map(str, value))
        elif key.endswith("_ms"):
            shown = format_ms(float(str(value)))
        elif key.endswith("_bytes"):
            shown = format_bytes(float(str(value)))
        else:
            shown = str(value)
        label = key.removesuffix("_ms").removesuffix("_bytes").replace("_", " ")
        first, *more = wrap(shown, width - 19)
        line = Text(f"{label:<19}", style="cyan")
        line.append(first, style="default")
        lines += [line, *(Text(" " * 19 + text) for text in more)]
    return Group(*lines)


@profile_app.command()
def convert(
    file: SourceArgument,
    output: CsvOutputOption = None,
    precision: PrecisionOption = None,
) -> None:
    """Write any measured profile (PipeDream graph.txt, another CSV) as a profile CSV."""
    from planner.cli.output import check_output, read_model_argument

    check_output(output, inputs=(file,))
    model = read_model_argument(file, precision=precision, sequence_length=None)
    if model.is_analytic:
        raise InputError(
            "has shapes, not times",
            value=file,
            fix="use planner profile from-config with --cluster",
        )
    _write(model, output)


@profile_app.command("from-config")
def from_config(
    config: SourceArgument,
    cluster: Annotated[str, typer.Option(help="Whose GPU prices the layers.")],
    seq_len: Annotated[int | None, typer.Option(min=1, max=MOST_SAMPLES)] = None,
    tp: Annotated[str, typer.Option(help="Comma list of tensor degrees.")] = "1",
    microbatch_size: Annotated[str, typer.Option(help="Comma list of micro-batch sizes.")] = "1",
    precision: PrecisionOption = None,
    output: CsvOutputOption = None,
) -> None:
    """Price a config.json (or catalog model) layer by layer and write a profile CSV."""
    from planner import api
    from planner.cli.output import check_output, read_model_argument
    from planner.studies.profiles import formula_profile

    check_output(output, inputs=(config, cluster))
    model = read_model_argument(config, precision=precision, sequence_length=seq_len)
    if not model.is_analytic:
        raise InputError("is a profile already", value=config, fix="use planner profile convert")
    profile = formula_profile(
        model,
        api.load_cluster(cluster),
        sequence_length=seq_len,
        tensor_degrees=_counts(tp, "--tp"),
        microbatch_sizes=_counts(microbatch_size, "--microbatch-size"),
    )
    _write(profile, output)


def _counts(text: str, flag: str) -> list[int]:
    try:
        values = [int(word) for word in text.split(",")]
    except ValueError:
        values = []
    if not values or min(values) < 1 or max(values) > MOST_DEGREE:
        raise InputError(f"is no list for {flag}", value=text, expected="whole numbers, as 1,2,4")
    return values


def _write(model: object, output: str | None) -> None:
    from planner.cli.output import emit_text, warn, write_text
    from planner.formats.profile_csv import write_profile
    from planner.specs import Model, Precision

    assert isinstance(model, Model)
    if model.precision is not Precision.BF16:
        warn(
            f"a profile CSV does not carry the precision: read it with "
            f"--precision {model.precision.value}"
        )
    stream = io.StringIO()
    write_profile(model, stream)
    if output is None or output == "-":
        emit_text(stream.getvalue())
    else:
        write_text(output, stream.getvalue())
