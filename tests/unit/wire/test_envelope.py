"""Envelopes: what travels beside a request's body, and how headers say it."""

import asyncio

import pytest

from anabranch.common.contracts.envelope import Envelope, bearer
from anabranch.common.runtime.speaking import enveloped, speaking_as


@pytest.mark.parametrize(
    "sent",
    [
        Envelope(b"body"),
        Envelope(b"", "00-ab-cd-01"),
        Envelope(b"body", token="secret"),
        Envelope(b"body", "00-ab-cd-01", "secret"),
    ],
)
def test_what_is_sent_is_received(sent: Envelope) -> None:
    assert Envelope.received(sent.body, sent.headers()) == sent


def test_a_request_with_nothing_beside_its_body_has_no_headers() -> None:
    assert Envelope(b"body").headers() is None


@pytest.mark.parametrize(
    ("authorization", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", ""),
        ("Bearer", ""),
        ("Bearer ", ""),
        ("", ""),
    ],
)
def test_only_the_scheme_bearer_carries_a_token(authorization: str, token: str) -> None:
    assert bearer(authorization) == token


def test_a_token_is_not_shown_by_accident() -> None:
    assert "secret" not in repr(Envelope(b"body", token="secret"))


def test_a_caller_that_is_spoken_for_is_named_instead_of_the_process() -> None:
    with speaking_as("caller"):
        named = enveloped(b"", "own").token
    with speaking_as(""):
        unnamed = enveloped(b"", "own").token
    assert (named, unnamed, enveloped(b"", "own").token) == ("caller", "own", "own")


async def test_callers_at_the_same_time_keep_their_tokens_apart() -> None:
    async def ask(token: str) -> str:
        with speaking_as(token):
            await asyncio.sleep(0)
            return enveloped(b"").token

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(token)) for token in ("a", "b")]
    assert [each.result() for each in asked] == ["a", "b"]
