"""The command ``planner``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors become one line on stderr and an exit status.

    Parameters
    ----------
    arguments
        Instead of ``sys.argv[1:]``.

    Raises
    ------
    SystemExit
        Always. Status: 0 done, 1 internal error, 2 bad usage or input, 3 infeasible, 4 deadline
        passed without a plan.
    """
    from planner.cli.app import app
    from planner.errors import InputError

    try:
        status = app(
            None if arguments is None else list(arguments),
            prog_name="planner",
            standalone_mode=False,
        )
    except InputError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_status)
    except BrokenPipeError:
        # The reader of our output (head, less) went away: not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(130)
    except Exception as error:
        if hasattr(error, "format_message"):
            sys.exit(_usage(error, sys.argv[1:] if arguments is None else arguments))
        if type(error).__name__ == "Abort":
            _say("interrupted")
            sys.exit(130)
        if os.environ.get("PLANNER_DEBUG"):
            raise
        _say(
            f"internal error: {type(error).__name__}: {error} "
            "(set PLANNER_DEBUG=1 for the traceback, and please report it)"
        )
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def _say(text: str) -> None:
    """One line on stderr, also where a message of another library has several."""
    print(" ".join(text.split()), file=sys.stderr)


def _usage(error: Exception, arguments: Sequence[str]) -> int:
    """A usage error of the command-line library in one line; its classes moved between versions."""
    if type(error).__name__ == "NoArgsIsHelpError":
        # The help is on standard output already, or is the message.
        text = str(error)
        if text.strip():
            print(text)
        return 2
    message: str = error.format_message()  # type: ignore[attr-defined]
    command = getattr(getattr(error, "ctx", None), "command_path", None) or "planner"
    message = message.replace("Value error, ", "").rstrip().rstrip(".")
    message = message[:1].lower() + message[1:]
    given = _given(getattr(error, "param", None), arguments)
    if given is not None and given not in message:
        message = message.replace("Input should be", f'"{given}" should be')
    _say(f"error: {message}; see {command} --help")
    return 2


def _given(parameter: object, arguments: Sequence[str]) -> str | None:
    """The text that was given for an option, where it can be found."""
    for flag in getattr(parameter, "opts", ()):
        for index in range(len(arguments) - 1, -1, -1):
            name, equals, value = arguments[index].partition("=")
            if name == flag and equals:
                return value
            if name == flag and index + 1 < len(arguments):
                return arguments[index + 1]
    return None
