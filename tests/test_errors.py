from __future__ import annotations

import pickle
from itertools import product

import pytest

from planner import errors
from planner.errors import FileFormatError, InputError, PlannerError, ProfileError

KINDS = [getattr(errors, name) for name in errors.__all__]


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = errors.__doc__ or ""
    for kind in KINDS:
        assert f"{kind.__name__} " in drawn
        assert f'reason "{kind.reason}"' in drawn


def test_reasons_are_stable_and_different() -> None:
    reasons = [kind.reason for kind in KINDS]
    assert len(set(reasons)) == len(reasons)
    assert {kind.reason for kind in (ProfileError, FileFormatError, PlannerError)} == {
        "BAD_PROFILE",
        "BAD_FILE",
        "INTERNAL",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_bad_input_leaves_with_2_and_the_planners_own_failures_with_1(
    kind: type[PlannerError],
) -> None:
    assert issubclass(kind, PlannerError)
    assert kind.exit_status == (2 if issubclass(kind, InputError) else 1)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, InputError)])
def test_errors_survive_the_way_from_a_worker(kind: type[InputError]) -> None:
    error = kind(
        "is negative",
        file="a.csv",
        line=3,
        column="forward_ms",
        value="-1",
        expected="a number >= 0",
        fix="measure again",
    )
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_the_message_says_place_value_problem_expectation_and_fix() -> None:
    error = InputError(
        "is late", file="f", line=2, column="c", value="v", expected="e", fix="do it"
    )
    assert str(error) == 'f:2 column c: "v" is late; expected e; do it'


@pytest.mark.parametrize("given", list(product((None, "f"), (None, 2), (None, "c"))))
def test_any_part_of_the_place_may_be_missing(given: tuple[str | None, int | None, str]) -> None:
    file, line, column = given
    text = str(InputError("is late", file=file, line=line, column=column))
    assert text.endswith("is late")
    for part in (file, line, column):
        assert part is None or str(part) in text
    assert not text.startswith((":", " "))


def test_long_values_are_shortened() -> None:
    text = str(InputError("is long", value="x" * 1000))
    assert len(text) < 80
    assert '..." is long' in text
