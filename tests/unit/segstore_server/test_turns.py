"""Connections that send much take turns while another one sends little, and only then."""

import asyncio
from collections.abc import Iterator

from anabranch.common.wire.messages import Append, Hello, KeepAlive, encode_message
from anabranch.segstore.server.tcp import Connection
from anabranch.segstore.server.turns import HEARD_S, MUCH_S, SHARE_SIZE_BYTES, Turn, Turns
from anabranch.segstore.shell.container.throttle import ThrottleLimits
from kit.live_store import LiveStore, World, live_store

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
        found = [ended(each, 4, at * MUCH_S / 2) for each in (first, second)]
    assert found == [0, 0]


def test_one_that_awaits_its_events_sends_little_however_fast_it_is() -> None:
    """5,000 events of 1 KiB in a second, while a flush holds the connections that send much up."""
    lone = Turn(Turns())

    for number in range(5_000):
        assert not lone.is_over(1_200, number / 5_000)
        assert not lone.sends_much(number / 5_000)


def test_one_that_reaches_its_share_slowly_sends_little() -> None:
    turns = Turns()
    slow, bulk = Turn(turns), Turn(turns)
    assert [slow.is_over(HALF, second) for second in range(10)] == [False] * 10
    ended(bulk, 4, 9.0)
    assert not slow.is_over(HALF, 9.05)
    assert (ended(bulk, 4, 9.05), bulk.sends_much(9.05), slow.sends_much(9.05)) == (2, True, False)


# --- connections ----------------------------------------------------------------------------------


class Wire(asyncio.Transport):
    """A transport to nowhere; `is_read`: whether the connection reads from it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.is_read = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: object) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def packets(message: Hello | KeepAlive) -> bytes:
    return b"".join(map(bytes, encode_message(message, 0, b"")))


def shares_of_a_packet() -> Iterator[bytes]:
    """A packet in pieces; before its last one it costs the connection next to nothing."""
    append = Append(session=1, first_event_number=1, count=1)
    packet = b"".join(map(bytes, encode_message(append, 1, bytes(5 * SHARE_SIZE_BYTES))))
    return (packet[at : at + SHARE_SIZE_BYTES] for at in range(0, len(packet), SHARE_SIZE_BYTES))


def connected(live: LiveStore) -> tuple[Connection, Wire]:
    connection, wire = Connection(live.server._served, live.server._admission), Wire()
    connection.connection_made(wire)
    connection.data_received(packets(Hello(node_id="")))
    return connection, wire


async def test_a_connection_that_sends_much_reads_on_in_the_next_turn() -> None:
    async with live_store(World()) as live:
        (bulk, wire), (lone, other) = connected(live), connected(live)
        shares = shares_of_a_packet()
        bulk.data_received(next(shares))
        lone.data_received(packets(KeepAlive()))
        for _ in range(3):
            bulk.data_received(next(shares))
            assert (wire.is_read, other.is_read) == (False, True)
            await asyncio.sleep(0.01)
            assert wire.is_read
        for each in (bulk, lone):
            each.connection_lost(None)


async def test_while_a_flush_is_behind_only_connections_that_send_much_stop() -> None:
    async with live_store(World()) as live:
        (bulk, wire), (lone, other) = connected(live), connected(live)
        live.throttle.untiered = ThrottleLimits().untiered + 1
        shares = shares_of_a_packet()
        for _ in range(2):
            bulk.data_received(next(shares))
        lone.data_received(packets(KeepAlive()))
        assert (wire.is_read, other.is_read) == (False, True)
        live.throttle.untiered = ThrottleLimits().untiered * 6 // 5
        lone.data_received(packets(KeepAlive()))
        assert not other.is_read
        live.throttle.add_untiered(-live.throttle.untiered)
        await asyncio.sleep(0.01)
        assert wire.is_read
        assert other.is_read
        for each in (bulk, lone):
            each.connection_lost(None)
