"""The command ``planner``."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; errors become one line on stderr and an exit status.

    Exit status: 0 done, 1 internal error, 2 bad usage or input, 3 infeasible, 4 deadline passed
    without a plan.
    """
    from planner.cli.app import app
    from planner.errors import InputError

    try:
        app()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        # The reader of our output (head, less) went away: not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if os.environ.get("PLANNER_DEBUG"):
            raise
        print(
            f"internal error: {type(error).__name__}: {error} "
            "(set PLANNER_DEBUG=1 for the traceback, and please report it)",
            file=sys.stderr,
        )
        sys.exit(1)
