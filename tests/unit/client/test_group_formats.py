"""What a group's log holds: entries and states as they are stored, frozen in golden files."""

from dataclasses import replace

import msgspec
import pytest

from anabranch.client.groups import updates as u
from anabranch.client.groups.codec import ReaderGroupCodec
from anabranch.client.groups.state import (
    SCHEMA_NUMBER,
    Checkpoint,
    GroupEnd,
    GroupSegment,
    OnlineReader,
    ReaderGroupState,
)
from anabranch.client.reading.frontier import FUTURE, Position
from anabranch.common.errors import FormatTooNew
from anabranch.common.model.names import SegmentId
from anabranch.common.model.reader_group import (
    GroupRetention,
    GroupStream,
    ReaderGroupConfig,
    SegmentPosition,
)
from kit.golden import assert_golden, read_golden

A, B, C = "s/x/0.#epoch.0", "s/x/1.#epoch.0", "s/x/2.#epoch.1"
SAVED = (u.Saved(A, 3, Position(5, 7), 900), u.Saved(B, 4, Position(6)))
AFTER = u.GroupSuccessor(C, 1 << 32 | 2, 0.25, 1.0)
CODEC = ReaderGroupCodec()

ENTRIES: dict[str, u.AnyUpdate] = {
    "joined": u.Joined(reader_id="r", nonce=7),
    "beat": u.Beat(reader_id="r", nonce=7, number=2, saved=SAVED),
    "acquired": u.Acquired(reader_id="r", nonce=7, segments=(A, B)),
    "released": u.Released(reader_id="r", nonce=7, saved=SAVED),
    "completed": u.Completed(reader_id="r", nonce=7, at=SAVED[0], successors=(AFTER,)),
    "left": u.Left(reader_id="r", nonce=7, saved=SAVED),
    "lost": u.Lost(reader_id="r", nonce=7, beat=2),
    "put_offline": u.PutOffline(reader_id="r", positions={A: Position(5, 7)}),
    "checkpoint_begun": u.CheckpointBegun(name="c", checkpoint="silent"),
    "checkpoint_reached": u.CheckpointReached(name="c", reader_id="r", nonce=7, saved=SAVED),
    "checkpoints_cancelled": u.CheckpointsCancelled(),
}

STATE = ReaderGroupState(
    incarnation=2,
    generation=3,
    config=ReaderGroupConfig(
        (
            GroupStream(
                "s/x",
                start=(SegmentPosition(SegmentId(0), 5, 7), SegmentPosition(SegmentId(1), 6)),
                end=(SegmentPosition(SegmentId(0), 50), SegmentPosition(SegmentId(1), 60)),
            ),
        ),
        lease_ms=8000,
        automatic_checkpoint_ms=30_000,
        checkpoints_max=2,
        retention=GroupRetention.AUTOMATIC,
        release_after_checkpoint=True,
    ),
    segments={
        A: GroupSegment(A, 0, 0.0, 0.5, Position(5, 7), 50, "r", 3, unread_bytes=900),
        B: GroupSegment(B, 1, 0.5, 1.0, Position(6), is_finished=True, successors=(C,)),
        C: GroupSegment(C, 1 << 32 | 2, 0.25, 1.0, FUTURE),
    },
    ends=(GroupEnd(A, 0, 0.0, 0.5, 50), GroupEnd(C, 1 << 32 | 2, 0.25, 1.0, -1)),
    readers={"r": OnlineReader(7, 2)},
    checkpoints=(
        Checkpoint("c", "user", 1, {}, {A: Position(5), B: Position(6)}, "r"),
        Checkpoint("d", "automatic", 2, {"r": 7}, {B: Position(6)}),
    ),
    checkpoints_begun=2,
    newest_ownership=4,
    beyond={C: AFTER},
)


@pytest.mark.parametrize("kind", ENTRIES)
def test_an_entry_is_stored_as_ever(kind: str) -> None:
    assert_golden(f"group_{kind}", CODEC.encode_update(ENTRIES[kind]))
    assert CODEC.decode_update(read_golden(f"group_{kind}")) == ENTRIES[kind]


def test_every_kind_of_entry_is_frozen() -> None:
    kinds = {type(each) for each in ENTRIES.values()}
    assert kinds == set(u.AnyUpdate.__args__)


def test_a_state_is_stored_as_ever() -> None:
    assert_golden("group_state_1", CODEC.encode_state(STATE))
    assert CODEC.decode_state(read_golden("group_state_1")) == STATE


@pytest.mark.parametrize(
    "data",
    [
        msgspec.msgpack.encode({"kind": "promoted", "reader_id": "r", "nonce": 7}),
        msgspec.msgpack.encode({"kind": "joined", "reader_id": "r"}),
        msgspec.msgpack.encode({"kind": "joined", "reader_id": "r", "nonce": "seven"}),
        b"\xc1",
        b"",
    ],
    ids=["unknown kind", "field missing", "field of another type", "no MessagePack", "nothing"],
)
def test_an_entry_that_cannot_be_read_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(FormatTooNew, match="entry cannot be read"):
        CODEC.decode_update(data)


def test_a_state_of_a_newer_release_is_refused_by_name() -> None:
    newer = replace(STATE, schema_number=SCHEMA_NUMBER + 1)
    with pytest.raises(FormatTooNew, match="state cannot be read"):
        CODEC.decode_state(CODEC.encode_state(newer))
    with pytest.raises(FormatTooNew, match="state cannot be read"):
        CODEC.decode_state(b"\x80")


def test_fields_that_an_entry_need_not_have_have_defaults() -> None:
    short = {"kind": "beat", "reader_id": "r", "nonce": 7, "number": 2}
    assert CODEC.decode_update(msgspec.msgpack.encode(short)) == u.Beat(
        reader_id="r", nonce=7, number=2
    )
    saved = {"segment": A, "ownership": 3, "position": [5, 7]}
    found = CODEC.decode_update(msgspec.msgpack.encode({**short, "saved": [saved]}))
    assert found == u.Beat(reader_id="r", nonce=7, number=2, saved=(u.Saved(A, 3, Position(5, 7)),))


def test_fields_that_a_state_need_not_have_have_defaults() -> None:
    config = {"streams": [{"stream": "s/x"}]}
    segment = {
        "name": A, "segment_id": 0, "key_start": 0.0, "key_end": 1.0, "position": [5, 7],
    }  # fmt: skip
    data = {"incarnation": 1, "generation": 0, "config": config, "segments": {A: segment}}
    assert CODEC.decode_state(msgspec.msgpack.encode(data)) == ReaderGroupState(
        1, 0, ReaderGroupConfig((GroupStream("s/x"),)),
        {A: GroupSegment(A, 0, 0.0, 1.0, Position(5, 7))},
    )  # fmt: skip


def test_a_field_of_an_entry_that_is_not_known_is_passed_over() -> None:
    data = {"kind": "joined", "reader_id": "r", "nonce": 7, "colour": "green"}
    assert CODEC.decode_update(msgspec.msgpack.encode(data)) == ENTRIES["joined"]
