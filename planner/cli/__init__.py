"""The command ``planner``."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["main"]

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""What a write to standard output can fail with; reads and files have errors of their own."""


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
        passed without a plan, 5 the server is not there, 6 it refuses the caller, 130 interrupted,
        143 terminated.
    """
    _open_missing_streams()
    with _signals_raise():
        sys.exit(_status(arguments))


def _status(arguments: Sequence[str] | None) -> int:
    from planner.cli.app import app
    from planner.errors import PlannerError

    try:
        status = app(
            None if arguments is None else list(arguments),
            prog_name="planner",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except PlannerError as error:
        _say(f"error: {error}")
        return error.exit_status
    except BrokenPipeError:
        # The reader of our output (head, less) went away: not an error.
        _drop_stdout()
        return 0
    except _Signalled as left:
        if left.status == 128 + signal.SIGINT:
            _say("interrupted")
        return left.status
    except SystemExit as left:
        # The libraries that print the help turn a reader who went away into a failure.
        if isinstance(left.__context__, BrokenPipeError):
            _drop_stdout()
            return 0
        raise
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except Exception as error:
        if hasattr(error, "format_message"):
            return _usage(error, sys.argv[1:] if arguments is None else arguments)
        if type(error).__name__ == "Abort":
            _say("interrupted")
            return 130
        if isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE:
            _drop_stdout()
            _say(f"error: standard output cannot be written: {error.strerror}")
            return 1
        if os.environ.get("PLANNER_DEBUG"):
            raise
        _say(
            f"internal error: {type(error).__name__}: {error} "
            "(set PLANNER_DEBUG=1 for the traceback, and please report it)"
        )
        return 1
    return status if isinstance(status, int) else 0


class _Signalled(SystemExit):
    """The process was asked to end; what is open is closed and cleaned up on the way out."""

    def __init__(self, number: int) -> None:
        self.status = 128 + number
        super().__init__(self.status)


@contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGINT and SIGTERM end a run like an error does, unless the caller handles them."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.getsignal(number) for number in usual}
    ours = []
    for number, handler in usual.items():
        if before[number] == handler:
            # Only the main thread may set handlers.
            with suppress(ValueError):
                signal.signal(number, _leave)
                ours.append(number)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _leave(number: int, frame: FrameType | None) -> None:
    # A second signal (timeout and shells send several) must not cut the clean-up short.
    signal.signal(number, signal.SIG_IGN)
    raise _Signalled(number)


def _open_missing_streams() -> None:
    """Streams that the caller closed lead nowhere, and leave their numbers to no other file."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _drop_stdout() -> None:
    """What is still buffered for standard output goes nowhere, or leaving would fail on it."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def _say(text: str) -> None:
    """One line on stderr, also where a message of another library has several."""
    with suppress(OSError):
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
