"""Nearest known word, for hints in errors and warnings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]

_MOST_WORDS = 2000
"""Comparing is slow and the hint is a courtesy: more words than this are not looked at."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The most similar known word, or None where nothing is similar.

    Examples
    --------
    >>> nearest("foward_ms", ["forward_ms", "backward_ms"])
    'forward_ms'
    """
    found = _similar(word, known, 1)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint with up to three similar words, or None where nothing is similar.

    Examples
    --------
    >>> did_you_mean("gpus_per_nod", ["nodes", "gpus_per_node"])
    'did you mean gpus_per_node?'
    """
    found = _similar(word, known, 3)
    return f"did you mean {' or '.join(found)}?" if found else None


def _similar(word: str, known: Iterable[str], most: int) -> list[str]:
    words = [other for _, other in zip(range(_MOST_WORDS), known, strict=False)]
    return difflib.get_close_matches(word, words, n=most, cutoff=0.6)
