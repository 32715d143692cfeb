"""Random and mutated requests to every RPC of a server, and what may come of them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message
from rpcs import RPCS, Rpc, reason_of

_NEVER = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS}
_NUMBERS = (0, 1, -1, 2, 3, 7, 64, 1000, 10**6, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_FLOATS = (0.0, -1.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"), 0.5)
_TEXTS = ("", "a", "../../etc/passwd", "/etc/passwd", "-", "\x00", "é" * 50, "{}", "[]", "x" * 5000,
          "llama3-8b", "dgx-h100:1", "dgx-h100:99999999", "name,forward_ms\na,1\n")  # fmt: skip


@dataclass
class FuzzReport:
    """What came of a run."""

    sent: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    """Answers that must not be, with what was sent."""


async def fuzz(
    address: str, count: int, seed: int, *, callers: int = 8, timeout_s: float = 3.0
) -> FuzzReport:
    """Send requests and judge the answers.

    Parameters
    ----------
    timeout_s
        Deadline of each call; an answer that is not there a second later is a hang.
    """
    report = FuzzReport()
    numbers = iter(range(count))
    channel = grpc.aio.insecure_channel(address)

    async def caller(own: int) -> None:
        for number in numbers:
            chance = random.Random(f"{seed}/{number}")
            rpc = chance.choice(RPCS)
            await _one(channel, rpc, _request(rpc, chance), timeout_s, report)

    try:
        await asyncio.gather(*(caller(i) for i in range(callers)))
    finally:
        await channel.close()
    return report


async def _one(
    channel: grpc.aio.Channel, rpc: Rpc, data: bytes, timeout_s: float, report: FuzzReport
) -> None:
    package = (
        "google.longrunning.Operations"
        if rpc.name.endswith(("Operation", "Operations"))
        else "planner.v1.PlannerService"
    )
    path = f"/{package}/{rpc.name}"
    report.sent += 1
    try:
        async with asyncio.timeout(timeout_s + 2.0):
            if rpc.streams:
                stream = channel.unary_stream(path)(data, timeout=timeout_s)
                async for _ in stream:
                    pass
            else:
                await channel.unary_unary(path)(data, timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        code, reason = error.code(), reason_of(error)
        report.codes[f"{code.name} {reason}".strip()] += 1
        if code in _NEVER or (code is grpc.StatusCode.INVALID_ARGUMENT and not reason):
            report.bad.append(f"{rpc.name} {code.name} {error.details()}: {data[:300].hex()}")
    except TimeoutError:
        report.bad.append(f"{rpc.name} hangs: {data[:300].hex()}")
    else:
        report.codes["OK"] += 1


def _request(rpc: Rpc, chance: random.Random) -> bytes:
    """Bytes for an RPC: noise, broken, or well-formed with odd values."""
    kind = chance.randrange(4)
    if kind == 0:
        return chance.randbytes(chance.choice((0, 1, 2, 10, 100, 3000)))
    request = rpc.good() if chance.random() < 0.8 else rpc.bad()
    if kind == 1:
        return _broken(request.SerializeToString(), chance)
    for _ in range(chance.choice((1, 1, 2, 5))):
        _odd_value(request, chance)
    return bytes(request.SerializeToString())


def _broken(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 3, 10))):
        way = chance.randrange(4)
        at = chance.randrange(len(changed) + 1)
        if way == 0 and changed:
            changed[at % len(changed)] = chance.randrange(256)
        elif way == 1:
            del changed[at : at + chance.choice((1, 5, 50))]
        elif way == 2:
            changed[at:at] = chance.randbytes(chance.choice((1, 4, 16)))
        else:
            changed[at:at] = changed[: chance.choice((4, 40))]
    return bytes(changed)


def _odd_value(message: Any, chance: random.Random) -> None:
    """Give a field somewhere in a message a value that nobody would."""
    target: Any = message
    while True:
        inside = [
            (f, v)
            for f, v in target.ListFields()
            if f.message_type is not None and not f.message_type.GetOptions().map_entry
        ]
        if not inside or chance.random() < 0.35:
            break
        descriptor, value = chance.choice(inside)
        target = value if isinstance(value, Message) else chance.choice(list(value))
    plain = [f for f in target.DESCRIPTOR.fields if f.message_type is None]
    if not plain:
        return
    descriptor = chance.choice(plain)
    choices: tuple[Any, ...] = _NUMBERS
    if descriptor.cpp_type in (descriptor.CPPTYPE_DOUBLE, descriptor.CPPTYPE_FLOAT):
        choices = _FLOATS
    elif descriptor.cpp_type == descriptor.CPPTYPE_STRING:
        choices = _TEXTS
    elif descriptor.cpp_type == descriptor.CPPTYPE_BOOL:
        choices = (False, True)
    value = chance.choice(choices)
    try:
        if descriptor.is_repeated:
            getattr(target, descriptor.name).extend([value] * chance.choice((1, 3, 200)))
        else:
            setattr(target, descriptor.name, value)
    except (ValueError, TypeError):
        return  # out of the field's range
