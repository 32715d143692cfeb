"""Messages put together from parts that are serialised already."""

from __future__ import annotations

__all__ = ["field_of_bytes"]


def field_of_bytes(number: int, payload: bytes) -> bytes:
    """A message that holds one submessage, from the submessage's bytes.

    Protocol buffers encoding: tag (field number and wire type 2), length, content.

    Examples
    --------
    >>> field_of_bytes(2, b"ab")
    b'\\x12\\x02ab'
    """
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
