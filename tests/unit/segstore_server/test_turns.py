"""Connections that send much take turns while another one sends little, and only then."""

from anabranch.segstore.server.turns import FAST_S, HEARD_S, SHARE_SIZE_BYTES, Turn, Turns

HALF = SHARE_SIZE_BYTES // 2


def ended(turn: Turn, count: int, now_s: float = 0.0) -> int:
    """How many of so many half shares, received at the same time, end a turn."""
    return sum(turn.is_over(HALF, now_s) for _ in range(count))


def test_alone_it_reads_on() -> None:
    assert ended(Turn(Turns()), 100) == 0


def test_beside_one_that_sends_little_each_share_ends_a_turn() -> None:
    turns = Turns()
    bulk, lone = Turn(turns), Turn(turns)
    ended(bulk, 4)
    assert not lone.is_over(1_000, 0.0)
    assert ended(bulk, 8) == 4
    assert ended(bulk, 8, 2 * HEARD_S) == 0
    assert not lone.is_over(1_000, 2 * HEARD_S)
    assert ended(bulk, 8, 2 * HEARD_S) == 4


def test_two_that_send_much_do_not_hold_each_other_up() -> None:
    turns = Turns()
    first, second = Turn(turns), Turn(turns)
    for at in range(10):
        found = [ended(each, 4, at * FAST_S / 2) for each in (first, second)]
    assert found == [0, 0]


def test_one_that_reaches_its_share_slowly_sends_little() -> None:
    turns = Turns()
    slow, bulk = Turn(turns), Turn(turns)
    assert [slow.is_over(HALF, second) for second in range(10)] == [False] * 10
    ended(bulk, 4, 9.0)
    assert not slow.is_over(HALF, 9.05)
    assert (ended(bulk, 4, 9.05), bulk.sends_much(9.05), slow.sends_much(9.05)) == (2, True, False)
