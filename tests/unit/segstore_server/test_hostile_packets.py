"""Whatever a request says, the store answers it by name and goes on serving."""

import asyncio

from anabranch.common.contracts.segment_requests import SEGMENT_REQUESTS
from anabranch.common.errors import InvalidName, SegmentNotFound
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    CreateSegment,
    Done,
    Failed,
    GetSegmentInfo,
    Message,
    Stamp,
    decode_message,
    encode_message,
    failed,
)
from anabranch.common.wire.packet import META_SIZE_BYTES_MAX, PacketParser, encode_packet
from kit.fuzz_targets import TARGETS
from kit.live_store import LiveStore, World, live_store
from kit.message_samples import SAMPLES, SEGMENT, WRITER
from kit.mutate import mutated, reshaped
from kit.rng import Random, seeded

INPUTS = 6000
LONGEST = META_SIZE_BYTES_MAX - 100
"""Of a name that fits in a request."""
BLOCK = encode_block([b"e"], writer_id=WRITER, first_event_number=1, base_timestamp_ms=0)
VERBS = {exchange.request: verb for verb, exchange in SEGMENT_REQUESTS.items()}
REQUESTS = [sample for sample in SAMPLES if type(sample) in VERBS]


def request_bytes(rng: Random) -> tuple[str, bytes]:
    """A request with an odd value in it, or damaged with its checksums made right."""
    message = rng.choice(REQUESTS)
    data = b"".join(encode_message(message, 7, BLOCK))
    (packet,) = PacketParser().feed(data)
    if rng.random() < 0.7:
        meta = reshaped(rng, packet.meta)[:META_SIZE_BYTES_MAX]
        data = b"".join(encode_packet(packet.kind, 7, meta, packet.payload))
    else:
        seal = next(target.seal for target in TARGETS if target.name == "packets")
        assert seal is not None
        data = seal(mutated(rng, [data]))
    return VERBS[type(message)], data


class Asked:
    """Requests that were put to a store, and the answers so far."""

    def __init__(self, live: LiveStore) -> None:
        self._live = live
        self._news = asyncio.Event()
        self.answers: list[list[bytes]] = []

    def ask(self, verb: str, data: bytes) -> None:
        mine: list[bytes] = []
        self.answers.append(mine)

        def answered(reply: bytes) -> None:
            mine.append(reply)
            self._news.set()

        self._live.desk.handle(verb, data, answered)

    async def all_answered(self) -> list[Message]:
        async with asyncio.timeout(10):
            while not all(self.answers):
                self._news.clear()
                await self._news.wait()
        assert {len(each) for each in self.answers} == {1}
        return [message_of(each[0]) for each in self.answers]


def packed(message: Message) -> bytes:
    return b"".join(encode_message(message, 1))


def message_of(reply: bytes) -> Message:
    (packet,) = PacketParser().feed(reply)
    return decode_message(packet)


async def test_odd_requests_are_each_answered_once_and_the_store_serves_on() -> None:
    rng = seeded(1)
    world = World()
    await world.assign(0)
    async with live_store(world) as live:
        asked = Asked(live)
        asked.ask("create", packed(CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1))))
        for number in range(INPUTS):
            asked.ask(*request_bytes(rng))
            if number % 50 == 0:
                await asyncio.sleep(0)
        other = SEGMENT.replace("/0.", "/9.")
        asked.ask("create", packed(CreateSegment(segment=other, stamp=Stamp(1, 1))))
        asked.ask("info", packed(GetSegmentInfo(segment="s" * LONGEST)))
        told = await asked.all_answered()
        made, unknown = told[-2:]
        assert made == Done()
        assert isinstance(unknown, Failed)
        codes = {each.code for each in told if isinstance(each, Failed)}
        assert len(codes) >= 8
        assert live.failures == []


def test_an_error_about_a_callers_long_words_fits_in_a_packet() -> None:
    name = "s" * LONGEST
    for error in (SegmentNotFound("no", segment=name), InvalidName(f"{name} is no name")):
        (data,) = encode_message(failed(error), 1)
        assert len(data) < 4096
