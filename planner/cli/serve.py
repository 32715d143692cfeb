"""``planner serve``: every setting of the server is a flag."""

from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["serve_command"]


def serve_command(config: Path | None, **flags: Any) -> None:
    """Run the gRPC service until SIGTERM; settings come from flags, PLANNER_* and --config."""
    # The core of gRPC has a log of its own, in no format of ours; what it says we say as well.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from planner.service.server import serve
    from planner.service.settings import load_settings

    asyncio.run(serve(load_settings(config, **flags)))


def _flags() -> list[inspect.Parameter]:
    """A keyword parameter for each setting, in their order."""
    from planner.service.settings import ServiceSettings

    found = [
        inspect.Parameter(
            "config",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[Path | None, typer.Option(help="A YAML file of settings.")],
        )
    ]
    for name, field in ServiceSettings.model_fields.items():
        switch = field.annotation is bool
        flag = "--" + name.replace("_", "-")
        names = [f"{flag}/--no-{flag[2:]}"] if switch else [flag]
        default = field.get_default(call_default_factory=True)
        option = typer.Option(
            *names,
            help=_plain(field.description),
            metavar=None if switch else "VALUE",
            show_default="none" if default is None else str(default),
        )
        kind: Any = (bool | None) if switch else (str | None)
        found.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[kind, option],
            )
        )
    return found


def _plain(text: str | None) -> str | None:
    """A description without its code marks."""
    return text.replace("``", "") if text else None


def add_to(app: typer.Typer) -> None:
    """Add the command; its flags are read from the settings, and these only when it runs."""

    @app.command(
        "serve",
        help="Run the gRPC service until SIGTERM.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def _serve(context: typer.Context) -> None:
        inner = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        inner.command(context_settings={"help_option_names": ["-h", "--help"]})(_command())
        inner(args=context.args, prog_name="planner serve", standalone_mode=False)


def _command() -> Any:
    def serve(**given: Any) -> None:
        serve_command(given.pop("config"), **given)

    flags = _flags()
    serve.__doc__ = serve_command.__doc__
    serve.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    serve.__annotations__ = {flag.name: flag.annotation for flag in flags}
    return serve
