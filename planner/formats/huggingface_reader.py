"""Checked access to the keys of a config.json, and what every family's reader returns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from planner.errors import ModelConfigError
from planner.specs import BlockShape

__all__ = ["MAX_LAYERS", "Architecture", "ConfigReader"]

MAX_LAYERS = 10_000
MAX_SIZE = 2**31 - 1


@dataclass(frozen=True)
class Architecture:
    """What a config.json says, whatever its spelling."""

    vocab: int
    hidden: int
    blocks: tuple[BlockShape, ...]
    positions: int
    """Context length in tokens."""
    tied: bool
    norm_bias: bool
    learned_positions: int = 0
    """Rows of a learned position table; 0 for rotary, ALiBi and the like."""
    dropout: bool = False
    prediction_modules: tuple[BlockShape, ...] = ()


class ConfigReader:
    """Checked access to the keys of one config.json."""

    def __init__(self, document: dict[str, Any], *, file: str, text: str = "") -> None:
        self.document = document
        self.file = file
        self.text = text

    def first(self, *keys: str) -> Any:
        """Value of the first key that is there and not null, else None."""
        for key in keys:
            if self.document.get(key) is not None:
                return self.document[key]
        return None

    def error(
        self, key: str, problem: str, *, expected: str | None = None, fix: str | None = None
    ) -> ModelConfigError:
        """An error about a key, with its line and value where it has them."""
        match = re.search(rf'"{re.escape(key)}"\s*:', self.text)
        line = self.text.count("\n", 0, match.start()) + 1 if match else None
        value = self.document.get(key)
        return ModelConfigError(
            problem,
            file=self.file,
            line=line,
            key=key,
            value=None if isinstance(value, dict | list) else value,
            expected=expected,
            fix=fix,
        )

    def whole(
        self, *keys: str, default: int | None = None, least: int = 1, most: int = MAX_SIZE
    ) -> int:
        """A whole number under the first of the keys that is there."""
        for key in keys:
            value = self.document.get(key)
            if value is None:
                continue
            good = isinstance(value, int) and not isinstance(value, bool)
            if not good or not least <= value <= most:
                raise self.error(
                    key, "is not usable", expected=f"a whole number from {least} to {most}"
                )
            return int(value)
        if default is None:
            also = f" (or {', '.join(keys[1:])})" if len(keys) > 1 else ""
            raise self.error(keys[0], f"is missing{also}", expected="a whole number")
        return default

    def flag(self, key: str, default: bool) -> bool:
        """A true or false."""
        value = self.document.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "is neither true nor false", expected="true or false")
        return value

    def any_positive(self, *keys: str) -> bool:
        """Whether any of the rates (dropout and the like) is above zero."""
        found = False
        for key in keys:
            value = self.document.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.error(key, "is not a rate", expected="a number from 0 to 1")
            if not 0 <= value <= 1:
                raise self.error(key, "is not a rate", expected="a number from 0 to 1")
            found = found or value > 0
        return found

    def indices(self, key: str) -> frozenset[int]:
        """A list of layer numbers."""
        value = self.document.get(key)
        if value is None:
            return frozenset()
        if not isinstance(value, list) or not all(type(entry) is int for entry in value):
            raise self.error(key, "is not a list of layer numbers", expected="a list as [0, 1]")
        return frozenset(value)

    def num_layers(self, *keys: str) -> int:
        """The number of blocks."""
        return self.whole(*keys, most=MAX_LAYERS)

    def head_split(
        self, hidden: int, *, hidden_key: str, heads_key: str, explicit: bool
    ) -> tuple[int, int]:
        """(heads, head size); the size is hidden / heads unless the family may state it."""
        heads = self.whole(heads_key)
        if explicit and self.document.get("head_dim") is not None:
            return heads, self.whole("head_dim")
        if hidden % heads:
            raise self.error(
                heads_key,
                f"does not divide {hidden_key} = {hidden}",
                expected=f"a divisor of {hidden}",
            )
        return heads, hidden // heads

    def kv_heads(self, heads: int, default: int | None = None) -> int:
        """Key and value heads; they must divide the query heads."""
        found = self.whole("num_key_value_heads", default=default or heads)
        if heads % found:
            raise self.error(
                "num_key_value_heads",
                f"does not divide num_attention_heads = {heads}",
                expected=f"a divisor of {heads}",
            )
        return found
