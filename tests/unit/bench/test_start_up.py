"""What a start's lines and processes say, and the table of several starts."""

import pytest

from bench.start_up import Seen, Start, name_of, table


def test_a_part_has_loaded_when_it_says_what_it_waits_for() -> None:
    seen = Seen()
    said = [
        ("waiting", ""),
        ("starting", ""),
        ("starting", "its program loads"),
        ("starting", "nats: waiting for NATS"),
        ("ready", ""),
        ("ready", ""),
    ]
    for second, (state, reason) in enumerate(said):
        seen.note({"part": "gateway", "state": state, "reason": reason}, float(second))

    assert (seen.started, seen.loaded, seen.ready) == (
        {"gateway": 1.0},
        {"gateway": 3.0},
        {"gateway": 4.0},
    )


@pytest.mark.parametrize(
    ("command_line", "part"),
    [
        (b"/bin/python\0-P\0-m\0anabranch.segstore\0", "segstore"),
        (b"/bin/nats-server\0--config\0/run/nats.conf\0", "nats"),
        (b"/bin/redis-server unixsocket:/run/redis.sock\0", "redis"),
    ],
)
def test_a_child_is_named_by_its_command_line(command_line: bytes, part: str) -> None:
    assert name_of(command_line) == part


def test_the_table_shows_medians() -> None:
    starts = [
        Start(ready, {"nats": 0.5}, {"nats": 0.6}, {"nats": ready}, {"up": 0.25, "nats": 0.5})
        for ready in (1.0, 3.0, 2.0)
    ]
    assert [line.split() for line in table(starts)][2:] == [
        ["up", "0.25"],
        ["nats", "0.50", "0.60", "2.00", "0.50"],
    ]
    assert next(table(starts)).startswith("3 starts on it: ready after 2.00 s (1.00 to 3.00), 0.75")
