"""Parked commands: what is put aside, after how many defects, and how it is kept."""

import json

import pytest

from anabranch.controller.domain.parking import (
    ABOUT_HEADER,
    PARK_AT_COUNT,
    PAUSES,
    Defects,
    ParkedCommand,
    command_id_in,
    headers_to_keep,
    parked_command,
    parked_headers,
)
from kit.golden import assert_golden

COMMAND = ParkedCommand(
    command_id="c-1",
    bucket=3,
    subject="ana.cmd.3.create_scope.s",
    body=b"{}",
    headers={"traceparent": "00-ab-cd-01"},
    error="KeyError('ü')",
    attempts=10,
    first_ms=1_700_000_000_000,
    last_ms=1_700_000_020_000,
)


def test_defects_of_one_command_are_counted_and_those_of_the_next_anew() -> None:
    first = Defects.after(None, 7, 100)
    second = Defects.after(first, 7, 250)

    assert (second.count, second.first_ms, second.last_ms) == (2, 100, 250)
    assert Defects.after(second, 8, 300) == Defects(8, 1, 300, 300)


@pytest.mark.parametrize(("draw", "total_s"), [(0.0, 10.65), (0.999, 21.3)])
def test_the_tries_of_a_command_take_ten_to_twenty_seconds(draw: float, total_s: float) -> None:
    pauses = [PAUSES.delay_s(count, draw) for count in range(1, PARK_AT_COUNT)]

    assert sum(pauses) == pytest.approx(total_s, rel=0.01)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"command_id": "a-B_9"}', "a-B_9"),
        (b'{"command_id": "a.b"}', "unnamed-5"),
        (b'{"command_id": "a b"}', "unnamed-5"),
        (b'{"command_id": "x\\n"}', "unnamed-5"),
        (b'{"command_id": 7}', "unnamed-5"),
        (b'["command_id"]', "unnamed-5"),
        (b"\xff", "unnamed-5"),
        (b"[" * 100_000, "unnamed-5"),
    ],
)
def test_a_parked_command_has_an_id_that_fits_into_a_subject(body: bytes, expected: str) -> None:
    assert command_id_in(body, 5) == expected


def test_headers_that_steer_the_server_and_secrets_are_not_kept() -> None:
    headers = {
        "Nats-Msg-Id": "1",
        "nats-expected-stream": "S",
        "traceparent": "00",
        "authorization": "Bearer secret",
    }

    assert headers_to_keep(headers) == {"traceparent": "00"}


def test_what_is_kept_of_a_command_is_read_back() -> None:
    headers = parked_headers(COMMAND)

    assert parked_command(3, "c-1", headers, b"{}") == COMMAND
    assert_golden("parked_command", json.dumps(headers, sort_keys=True).encode())


@pytest.mark.parametrize("about", ["", "[]", "{", '{"attempts": "ten", "first_ms": null}'])
def test_a_command_of_which_little_is_known_is_listed_all_the_same(about: str) -> None:
    found = parked_command(3, "c-1", {ABOUT_HEADER: about}, b"{}")

    assert (found.command_id, found.body, found.attempts, found.subject) == ("c-1", b"{}", 0, "")
