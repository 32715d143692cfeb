"""Flags that commands share, and how their text becomes values."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated

import typer

from planner.errors import InputError
from planner.specs import Precision, Recompute, Sends
from planner.units import parse_bandwidth, parse_bytes, parse_ms

__all__ = [
    "LARGEST_MEMORY_BYTES",
    "MOST_DEGREE",
    "MOST_SAMPLES",
    "Format",
    "PartitionObjective",
    "bandwidth_option",
    "bytes_option",
    "milliseconds_option",
    "parse_recompute",
    "seconds_option",
]

# Beyond these a count is a slip of the finger; larger ones would only be refused later.
MOST_SAMPLES = 10**9
MOST_DEGREE = 10**7
LARGEST_MEMORY_BYTES = 2**50


class Format(StrEnum):
    """What is printed on standard output."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="Tables for people or JSON.")]
OutputOption = Annotated[
    str | None, typer.Option("-o", "--output", metavar="FILE", help="Also write the plan as JSON.")
]
TimeLimitOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Wall clock, as 30s; best so far is returned.")
]
WorkLimitOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Branch-and-bound nodes a layout (deterministic); the default is 40,000."
    ),
]
PrecisionOption = Annotated[
    Precision | None, typer.Option(help="Number format; the default is bf16 or the profile's.")
]
OptimizerChoice = StrEnum("OptimizerChoice", {"ADAM": "adam", "SGD": "sgd", "NONE": "none"})
OptimizerOption = Annotated[OptimizerChoice, typer.Option(help="Whose states are kept.")]
PartitionObjective = StrEnum(
    "PartitionObjective", {"BOTTLENECK": "bottleneck", "STEP_TIME": "step-time"}
)
"""The objectives that make sense for the cuts of one layout."""
RecomputeOption = Annotated[
    str,
    typer.Option(
        metavar="MODES",
        help="Comma list each stage may choose from: none, selective, full, layers; or auto.",
    ),
]
SendsOption = Annotated[Sends, typer.Option(help="Do pipeline sends run beside compute?")]


def _server_option(name: str, variable: str, help: str, metavar: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        name, envvar=variable, show_envvar=True, metavar=metavar, help=help
    )
    return option


ServerOption = Annotated[
    str | None,
    _server_option(
        "--server",
        "PLANNER_SERVER",
        "Let a planner server compute: host:port (https:// in front: TLS). Files are read here.",
        "ADDRESS",
    ),
]
ServerTokenOption = Annotated[
    str | None,
    _server_option(
        "--server-token-file", "PLANNER_SERVER_TOKEN_FILE", "File of a bearer token.", "FILE"
    ),
]
ServerCaOption = Annotated[
    str | None,
    _server_option(
        "--server-ca", "PLANNER_SERVER_CA", "PEM of who signed the server's certificate.", "FILE"
    ),
]
ServerCertificateOption = Annotated[
    str | None,
    _server_option(
        "--server-certificate", "PLANNER_SERVER_CERTIFICATE", "PEM of who we are.", "FILE"
    ),
]
ServerKeyOption = Annotated[
    str | None,
    _server_option("--server-key", "PLANNER_SERVER_KEY", "PEM of the certificate's key.", "FILE"),
]


def refuse_without_server(context: typer.Context) -> None:
    """Refuse options of a server on a command line that names none.

    In the environment they may stand for the times when ``PLANNER_SERVER`` is there, too.
    """
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name)
        if name.startswith("server_") and getattr(given, "name", "") == "COMMANDLINE":
            raise InputError(
                "needs a server, and none is given",
                value=parameter.opts[0],
                fix="give --server ADDRESS before the verb, or set PLANNER_SERVER",
            )


EVERY_LAUNCHER = "1f1b,gpipe"
"""The schedules that are chosen from where nobody names any: every launcher runs them."""

VppOption = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_DEGREE, help="Chunks a rank, for schedules that take several."),
]


def parse_recompute(text: str) -> tuple[Recompute, ...] | None:
    """Recompute modes of a comma list; None for ``auto``."""
    if text == "auto":
        return None
    found: list[Recompute] = []
    for name in text.split(","):
        try:
            mode = Recompute(name.strip().lower())
        except ValueError:
            raise InputError(
                "is no recompute mode",
                value=name.strip(),
                expected="none, selective, full, layers or auto",
            ) from None
        if mode not in found:
            found.append(mode)
    return tuple(sorted(found, key=list(Recompute).index))


def bytes_option(text: str | None) -> int | None:
    """``80GiB`` to bytes; None stays None."""
    if text is None:
        return None
    value = parse_bytes(text)
    if not 1 <= value <= LARGEST_MEMORY_BYTES:
        raise InputError("is no memory", value=text, expected="a size of 1B to 1024TiB")
    return value


def bandwidth_option(text: str | None) -> float | None:
    """``25GB/s`` to bytes per second; None stays None."""
    if text is None:
        return None
    value = parse_bandwidth(text)
    if not math.isfinite(value):
        raise InputError("is no bandwidth", value=text, expected="a finite rate; none is free")
    return value


def milliseconds_option(text: str | None) -> float:
    """``5us`` to milliseconds; None is 0."""
    if text is None:
        return 0.0
    value = parse_ms(text)
    if not math.isfinite(value):
        raise InputError("is no latency", value=text, expected="a finite duration")
    return value


def seconds_option(text: str | None) -> float | None:
    """``30s`` to seconds; None stays None."""
    if text is None:
        return None
    value = parse_ms(text) / 1e3
    if not 0 < value < math.inf:
        raise InputError("is no time limit", value=text, expected="a duration > 0")
    return value
