"""The intake by itself: bodies and deadlines around an application that it does not know."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.common.runtime.clock import SystemClock
from anabranch.gateway.http.edge.intake import Intake, IntakeLimits, body_of, headers_of
from anabranch.gateway.http.edge.metrics import GatewayMetrics

LIMITS = IntakeLimits(
    body_size_bytes_max=1024,
    bodies_size_bytes_max=4096,
    body_timeout_s=20.0,
    answer_timeout_s=20.0,
    requests_max=4,
)
Headers = Sequence[tuple[bytes, bytes]]


class Counts:
    """The metrics that the intake writes to."""

    in_flight = 0
    body_bytes = 0

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        assert seconds >= 0


async def echo(scope: Scope, _: Receive, send: Send) -> None:
    """Answers with the body that the intake has received, and one header of the request."""
    said = headers_of(scope).get(b"x-said", b"")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body_of(scope) + said})


async def never(*_: Any) -> Any:
    await asyncio.Event().wait()


async def answer_to(
    headers: Headers, receive: Receive, app: ASGIApp = echo, limits: IntakeLimits = LIMITS
) -> tuple[int, bytes]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/x", "headers": list(headers)}
    metrics = cast(GatewayMetrics, Counts())
    intake = Intake(
        app, limits=limits, clock=SystemClock(), metrics=metrics, route_of=lambda _: "x"
    )
    await intake(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def in_parts(*parts: bytes, pause_s: float = 0.0) -> Receive:
    left = list(parts)

    async def receive() -> Message:
        await asyncio.sleep(pause_s)
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return receive


async def test_a_request_that_announces_no_body_is_not_received() -> None:
    assert await answer_to([], never) == (200, b"")


@pytest.mark.parametrize("header", [(b"content-length", b"4"), (b"transfer-encoding", b"chunked")])
async def test_a_body_is_received_whole_however_it_is_announced(
    header: tuple[bytes, bytes],
) -> None:
    assert await answer_to([header], in_parts(b"ab", b"cd")) == (200, b"abcd")


async def test_of_a_repeated_header_the_first_counts() -> None:
    said = [(b"x-said", b"one"), (b"x-said", b"two")]
    assert await answer_to(said, never) == (200, b"one")


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"2")]])
async def test_a_request_that_the_application_does_not_answer_has_an_unknown_outcome(
    headers: Headers,
) -> None:
    limits = _with(answer_timeout_s=0.02)
    status, body = await answer_to(headers, in_parts(b"ab"), never, limits)
    assert (status, msgspec.json.decode(body)["code"]) == (504, "outcome-unknown")


async def test_the_time_for_the_answer_begins_when_the_body_is_there() -> None:
    slow = in_parts(b"ab", b"cd", pause_s=0.03)
    limits = _with(answer_timeout_s=0.04)
    assert await answer_to([(b"content-length", b"4")], slow, echo, limits) == (200, b"abcd")


async def test_a_body_that_does_not_end_is_too_slow() -> None:
    limits = _with(body_timeout_s=0.02)
    status, body = await answer_to([(b"content-length", b"4")], never, echo, limits)
    assert (status, msgspec.json.decode(body)["code"]) == (408, "body-too-slow")


def _with(**changes: float) -> IntakeLimits:
    return replace(LIMITS, **changes)  # type: ignore[arg-type]
