"""Where in a request an error is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from planner.errors import InputError
from planner.formats.plan_file import plain_problem

__all__ = ["RequestError", "at_field"]


class RequestError(InputError):
    """A field of a request that cannot be used.

    ``field`` is its path (``question.training.global_batch_size``), ``why`` the problem alone and
    ``cause_reason`` the reason code of the library's error behind it, if any; ``cause`` is that
    error itself, from whose parts a client makes it again.
    """

    def __init__(
        self,
        field: str,
        why: str,
        cause_reason: str | None = None,
        cause: InputError | None = None,
    ) -> None:
        self.field = field
        self.why = why
        self.cause_reason = cause_reason
        self.cause = cause
        super().__init__(why, file=field)

    def __reduce__(self) -> tuple[object, ...]:
        return (RequestError, (self.field, self.why, self.cause_reason, self.cause))

    def inside(self, outer: str) -> RequestError:
        """The same error seen from the message that holds this field."""
        path = f"{outer}.{self.field}" if self.field else outer
        return RequestError(path, self.why, self.cause_reason, self.cause)


@contextmanager
def at_field(name: str) -> Iterator[None]:
    """Errors inside are about this field; nested ones add to its path.

    Examples
    --------
    >>> with at_field("question"), at_field("model"):
    ...     raise InputError("is empty", file="<stdin>", line=1)
    Traceback (most recent call last):
        ...
    planner.messages.fields.RequestError: question.model: line 1: is empty
    """
    try:
        yield
    except RequestError as error:
        raise error.inside(name) from None
    except InputError as error:
        plain = type(error)(
            error.problem,
            file=None if error.file == "<stdin>" else error.file,
            line=error.line,
            column=error.column,
            key=error.key,
            value=error.value,
            expected=error.expected,
            fix=error.fix,
        )
        raise RequestError(name, str(plain), error.reason, error) from None
    except ValidationError as error:
        raise RequestError(name, plain_problem(error)) from None
