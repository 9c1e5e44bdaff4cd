"""Room for half packets: bounded, shared among peers, and always given back."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.wire.packet import HEADER, PACKET_SIZE_BYTES_MAX, PacketParser
from anabranch.segstore.server.room import STILL_S_MAX, Claim, HalfPacket, Room

SIZE_MAX = 2 * PACKET_SIZE_BYTES_MAX

claims = st.tuples(st.sampled_from("abc"), st.integers(1, PACKET_SIZE_BYTES_MAX))
steps = st.lists(claims | st.integers(0, 30), max_size=60)


@given(steps)
def test_room_is_bounded_and_all_that_wait_are_granted_in_the_end(
    steps: list[tuple[str, int] | int],
) -> None:
    room = Room(SIZE_MAX)
    open_claims: list[Claim] = []
    called: list[int] = []
    for step in steps:
        if isinstance(step, tuple):
            number = len(called)
            claim = room.claim(*step, lambda number=number: called.append(number))  # type: ignore[misc]
            open_claims.append(claim)
        elif open_claims:
            room.give_back(open_claims.pop(step % len(open_claims)))
        _check(room, open_claims)
    while open_claims:
        granted = next(claim for claim in open_claims if claim.granted)
        open_claims.remove(granted)
        room.give_back(granted)
        _check(room, open_claims)
    assert not room.used
    assert not room.crowded


def _check(room: Room, open_claims: list[Claim]) -> None:
    used: Counter[str] = Counter()
    for claim in open_claims:
        used[claim.peer] += claim.size * claim.granted
    assert room.used == used.total() <= SIZE_MAX
    assert max(used.values(), default=0) <= SIZE_MAX // 2
    assert room.crowded == any(not claim.granted for claim in open_claims)
    assert not open_claims or any(claim.granted for claim in open_claims)


def half_packet(room: Room, at: float) -> tuple[HalfPacket, PacketParser]:
    half, parser = HalfPacket(room, "peer", lambda: None), PacketParser()
    list(parser.feed(HEADER.pack(PACKET_SIZE_BYTES_MAX - 4, 16, 0, 0, 1, 0, 0)))
    half.received(parser, at, completed=False)
    return half, parser


def test_the_time_of_a_packet_that_waits_for_room_begins_when_it_is_read_again() -> None:
    room = Room(SIZE_MAX)
    first, _ = half_packet(room, at=0.0)
    second, _ = half_packet(room, at=0.0)
    assert (first.waits, second.waits) == (False, True)
    assert not second.overdue(1000.0, 0.0, 60.0)
    assert first.overdue(61.0, 61.0, 60.0)
    first.end()
    assert not second.waits
    second.read_again(1000.0)
    assert not second.overdue(1060.0, 1060.0, 60.0)
    assert second.overdue(1061.0, 1061.0, 60.0)


def test_a_packet_that_stands_still_is_given_up_sooner_while_others_wait() -> None:
    room = Room(SIZE_MAX)
    first, _ = half_packet(room, at=0.0)
    late = STILL_S_MAX + 1
    assert not first.overdue(late, 0.0, 60.0)
    second, _ = half_packet(room, at=0.0)
    assert first.overdue(late, 0.0, 60.0)
    assert not first.overdue(late, late - 1, 60.0)
    second.end()
    assert not first.overdue(late, 0.0, 60.0)
