"""What a container decides, as tables: given what is known, when a request, then the outcome."""

import struct

import pytest
from crc32c import crc32c

from anabranch.common.errors import AnabranchError
from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.common.wire.block import (
    BLOCK_SIZE_BYTES_MAX,
    EVENT_SIZE_BYTES_MAX,
    HEADER_SIZE_BYTES,
)
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import Append, Stamp
from anabranch.segstore.domain.container.decide import (
    Known,
    decide_append,
    decide_create,
    decide_delete,
    decide_seal,
    decide_setup,
)

NAME = "scope/stream/0.#epoch.0"
WRITER = bytes(16)

KNOWN: dict[str, Known] = {
    "nothing": None,
    "open@2": SegmentState(NAME, 1, Stamp(1, 2), length=100, event_count=9),
    "sealed@2": SegmentState(NAME, 1, Stamp(1, 2), length=100, event_count=9, sealed=True),
    "gone@2": Tombstone(NAME, Stamp(1, 2), 5, 0),
}

CONTROL = """
known     request     outcome
nothing   create@1    CreateOperation
open@2    create@1    stale-request
open@2    create@2    NoChange
open@2    create@3    segment-exists
sealed@2  create@1    stale-request
sealed@2  create@2    NoChange
gone@2    create@1    stale-request
gone@2    create@2    stale-request
gone@2    create@3    CreateOperation
nothing   seal@1      segment-not-found
open@2    seal@1      stale-request
open@2    seal@2      SealOperation
open@2    seal@3      SealOperation
sealed@2  seal@1      stale-request
sealed@2  seal@2      NoChange
sealed@2  seal@3      SealOperation
gone@2    seal@1      stale-request
gone@2    seal@2      segment-not-found
gone@2    seal@3      segment-not-found
nothing   delete@1    DeleteOperation
open@2    delete@1    stale-request
open@2    delete@2    DeleteOperation
open@2    delete@3    DeleteOperation
sealed@2  delete@3    DeleteOperation
gone@2    delete@1    stale-request
gone@2    delete@2    NoChange
gone@2    delete@3    DeleteOperation
nothing   setup       segment-not-found
open@2    setup       SegmentState
sealed@2  setup       SegmentState
gone@2    setup       outcome-unknown
"""

APPENDS = """
known     last  events  outcome
open@2    0     1-3     AppendOperation
open@2    0     2-3     writer-expired
open@2    5     6-6     AppendOperation
open@2    5     3-5     Duplicate
open@2    5     5-5     Duplicate
open@2    5     4-6     partial-duplicate
open@2    5     1-6     partial-duplicate
open@2    5     7-8     event-gap
sealed@2  0     1-1     segment-sealed
sealed@2  5     6-6     segment-sealed
sealed@2  5     4-6     segment-sealed
sealed@2  5     3-5     Duplicate
"""


def rows(table: str) -> list[tuple[str, ...]]:
    return [tuple(line.split()) for line in table.strip().splitlines()[1:]]


@pytest.mark.parametrize(("known", "request_text", "outcome"), rows(CONTROL))
def test_a_control_request_is_decided_by_what_is_known(
    known: str, request_text: str, outcome: str
) -> None:
    verb, _, revision = request_text.partition("@")
    assert outcome_of(verb, KNOWN[known], int(revision or 0)) == outcome


def outcome_of(verb: str, known: Known, revision: int) -> str:
    decide = {"create": decide_create, "seal": decide_seal, "delete": decide_delete}
    try:
        if verb == "setup":
            return type(decide_setup(known, NAME, WRITER)).__name__
        return type(decide[verb](known, NAME, Stamp(1, revision), 0)).__name__
    except AnabranchError as error:
        return error.code


@pytest.mark.parametrize(("known", "last", "events", "outcome"), rows(APPENDS))
def test_an_append_is_decided_by_the_writers_last_number(
    known: str, last: str, events: str, outcome: str
) -> None:
    first, _, end = events.partition("-")
    count = int(end) - int(first) + 1
    payload = encode_block(
        [b"e"] * count, writer_id=WRITER, first_event_number=int(first), base_timestamp_ms=0
    )
    assert append_outcome(known, int(last), int(first), count, payload) == outcome


def append_outcome(
    known: str, last: int, first: int, count: int, payload: bytes, *, is_block: bool = True
) -> str:
    state = KNOWN[known]
    assert isinstance(state, SegmentState)
    request = Append(session=1, first_event_number=first, count=count, is_block=is_block)
    try:
        decision = decide_append(state, last, WRITER, request, payload, now_ms=0)
    except AnabranchError as error:
        return error.code
    return type(decision).__name__


def test_a_block_must_be_whole_and_agree_with_its_request() -> None:
    block = encode_block([b"a", b"b"], writer_id=WRITER, first_event_number=1, base_timestamp_ms=0)
    foreign = encode_block(
        [b"a", b"b"], writer_id=b"f" * 16, first_event_number=1, base_timestamp_ms=0
    )
    damaged = block[:-1] + b"!"
    cases = {
        "AppendOperation": (1, 2, block),
        "invalid-request": (1, 3, block),
        "corrupt-block": (1, 2, damaged),
    }
    for outcome, (first, count, payload) in cases.items():
        assert append_outcome("open@2", 0, first, count, payload) == outcome
    assert append_outcome("open@2", 1, 2, 2, block) == "invalid-request"
    assert append_outcome("open@2", 0, 1, 2, foreign) == "invalid-request"
    assert append_outcome("open@2", 0, 1, 2, block + block) == "corrupt-block"
    assert append_outcome("open@2", 0, 1, 2, block[:40]) == "corrupt-block"


def test_raw_appends_have_limits_too() -> None:
    raw = {"is_block": False}
    assert append_outcome("open@2", 0, 1, 1, b"raw", **raw) == "AppendOperation"
    assert append_outcome("open@2", 0, 1, 0, b"raw", **raw) == "invalid-request"
    assert append_outcome("open@2", 0, 0, 1, b"raw", **raw) == "invalid-request"
    assert append_outcome("open@2", 0, 1, 1, b"", **raw) == "invalid-request"
    too_large = bytes(BLOCK_SIZE_BYTES_MAX + 1)
    assert append_outcome("open@2", 0, 1, 1, too_large, **raw) == "event-too-large"


def test_an_event_over_the_limit_is_refused_even_in_a_sound_block() -> None:
    small = encode_block(
        [b"a" * 9, b"b"], writer_id=WRITER, first_event_number=1, base_timestamp_ms=0
    )
    body = (EVENT_SIZE_BYTES_MAX + 1).to_bytes(4, "little") + bytes(EVENT_SIZE_BYTES_MAX + 1)
    header = bytearray(small[:HEADER_SIZE_BYTES])
    struct.pack_into(
        "<IIIII", header, 8, 1, len(header) + len(body), 4, EVENT_SIZE_BYTES_MAX + 1, 0
    )
    crc = crc32c(body, crc32c(bytes(header[:-4])))
    block = bytes(header[:-4]) + crc.to_bytes(4, "little") + body
    assert append_outcome("open@2", 0, 1, 1, block) == "event-too-large"


@pytest.mark.parametrize(
    "name", ["", "nonsense", "scope/stream", "a/b/x", "s/" + "x" * 2000 + "/0"]
)
def test_what_is_no_segments_name_is_refused(name: str) -> None:
    for decide in (decide_create, decide_delete):
        with pytest.raises(AnabranchError) as refused:
            decide(None, name, Stamp(1, 1), 0)
        assert refused.value.code == "invalid-name"


def test_a_writer_id_has_sixteen_bytes() -> None:
    with pytest.raises(AnabranchError, match="16 bytes"):
        decide_setup(KNOWN["open@2"], NAME, b"short")


@pytest.mark.parametrize("stamp", [Stamp(-1, 0), Stamp(0, -1), Stamp(2**63, 1), Stamp(1, 2**64)])
def test_a_stamp_that_the_log_cannot_hold_is_refused(stamp: Stamp) -> None:
    for decide in (decide_create, decide_seal, decide_delete):
        with pytest.raises(AnabranchError) as refused:
            decide(None, NAME, stamp, 0)
        assert refused.value.code == "invalid-request"
