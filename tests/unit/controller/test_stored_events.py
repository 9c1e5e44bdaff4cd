"""What was stored once is read for ever: a file for every kind of domain event and every shape.

A file ``<kind>_<schema number>.json`` holds an event as it is written today; one with a further
word holds it as it was written before, and what it means today. A new shape gets a file; the files
that are there stay as they are. ``REWRITE_GOLDEN=1`` writes those of today anew.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.subjects import stream_history, transaction_outcomes
from anabranch.common.errors import CorruptEvent
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.message import KIND_EVENTS, KIND_SNAPSHOT
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import segment_id, stream_ref
from anabranch.common.model.stream import (
    SegmentRange,
    StreamState,
    fixed,
)
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.domain.scope.state import SCOPE, Scope
from anabranch.controller.domain.stream import archive, causes, events
from anabranch.controller.domain.stream.commits import Outcome, OutcomeChunk
from anabranch.controller.domain.stream.cut_answers import epochs_before
from anabranch.controller.domain.stream.history import EpochRecord, History, SealedSegment
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.projections.histories import Histories
from anabranch.controller.projections.outcomes import OutcomeHistory
from kit.event_samples import ALL, CODECS

GOLDEN = Path(__file__).parent / "golden"


def name_of(event: Contract) -> str:
    fields = event.model_dump()
    return f"{fields['kind']}_{fields['schema_number']}"


def read(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes().strip()


def stored(name: str) -> EventMessage:
    return EventMessage("subject", 1, 1, "a", KIND_EVENTS, 1, 0, b"[%s]" % read(name))


@pytest.mark.parametrize("event", ALL, ids=name_of)
def test_an_event_is_written_as_it_always_was(event: Contract) -> None:
    body = event.model_dump_json().encode()
    if os.environ.get("REWRITE_GOLDEN") == "1":
        (GOLDEN / f"{name_of(event)}.json").write_bytes(body + b"\n")

    assert read(name_of(event)) == body


@pytest.mark.parametrize("event", ALL, ids=name_of)
def test_an_event_is_read_as_it_was_written(event: Contract) -> None:
    (aggregate,) = [aggregate for aggregate, those in CODECS if event in those]

    assert aggregate.events.validate_json(b"[%s]" % read(name_of(event))) == [event]


def test_every_kind_of_event_has_a_file() -> None:
    kinds = {name for aggregate, _ in CODECS for name in tagged(aggregate)}

    assert {event.model_dump()["kind"] for event in ALL} == kinds
    assert {name.rpartition("_")[0] for name in map(name_of, ALL)} == kinds


def tagged(aggregate: Aggregate[Any, Any]) -> list[str]:
    schema = aggregate.events.json_schema()
    return list(schema["items"]["discriminator"]["mapping"])


# --- how it was before --------------------------------------------------------------------------


def test_a_creation_without_a_configuration_is_of_that_many_segments_for_ever() -> None:
    state = STREAM.fold(Stream(), stored("stream_creating_1_without_config"))

    assert state.config == fixed(3)
    assert [segment.segment_id for segment in state.segments] == [0, 1, 2]
    assert [record.stream_epoch for record in state.epochs] == [0]
    assert [place.offset for place in state.head] == [0, 0, 0]
    assert state.intents[0].commands == ("create",)


@pytest.mark.parametrize("name", ["stream_creating_1", "stream_updating_1", "stream_updated_1"])
def test_a_configuration_without_a_word_on_it_spreads_the_segments(name: str) -> None:
    (event,) = STREAM.events.validate_json(b"[%s]" % read(f"{name}_without_together"))
    (today,) = STREAM.events.validate_json(b"[%s]" % read(name))

    assert event == today
    assert b'"together"' not in read(f"{name}_without_together")
    assert b'"together":false' in read(name)


@pytest.mark.parametrize("kind", [IntentKind.CREATE, IntentKind.SEAL, IntentKind.DELETE])
def test_who_joined_without_saying_what_joined_the_only_thing_there_was(kind: IntentKind) -> None:
    state = life_until(kind)

    joined = STREAM.fold(state, stored("stream_intent_joined_1_without_intent"))

    (intent,) = joined.intents
    assert (intent.kind, intent.commands) == (kind, (*state.intents[0].commands, "late"))


def test_a_checked_cut_without_another_one_stays() -> None:
    (event,) = STREAM.events.validate_json(b"[%s]" % read("stream_cut_checked_1_without_cut"))

    assert event == events.StreamCutChecked()


def test_a_subscriber_that_told_no_start_has_released_nothing() -> None:
    state = STREAM.fold(
        life_until(IntentKind.SEAL), stored("stream_subscriber_added_1_without_cut")
    )

    (subscription,) = state.subscriptions.present
    assert (subscription.subscriber, subscription.standing, subscription.cut) == ("s/g", (1, 2), ())


def life_until(kind: IntentKind) -> Stream:
    """As it was stored before there were several intents, until that one is pending."""
    state = Stream()
    for name, pending in (
        ("stream_creating_1_without_config", IntentKind.CREATE),
        ("stream_joined_scope_1", None),
        ("stream_created_1", None),
        ("stream_sealing_1_without_time", IntentKind.SEAL),
        ("stream_sealed_1_of_three", None),
        ("stream_deleting_1_without_time", IntentKind.DELETE),
    ):
        state = STREAM.fold(state, stored(name))
        if pending is kind:
            break
    return state


def test_a_whole_life_as_it_was_stored_before_still_folds_and_keeps_its_invariants() -> None:
    state = life_until(IntentKind.DELETE)
    assert state.status is StreamState.DELETING
    assert [segment.size for segment in state.sealed] == [1, 2, 3]

    ended = STREAM.fold(state, stored("stream_deleted_1"))

    STREAM.check(state, ended)
    assert ended.status is StreamState.DELETED
    assert [operation.state.value for operation in ended.operations] == ["succeeded"] * 3


def test_a_scope_that_was_being_deleted_before_there_were_recursive_deletions() -> None:
    state = SCOPE.fold(Scope(), stored("scope_created_1"))
    for name in ("scope_deleting_1_without_recursive", "scope_intent_joined_1_without_recursive"):
        state = SCOPE.fold(state, stored(name))

    assert not state.is_recursive
    assert state.pending == ("c2", "c3")


# --- chunks of outcomes -------------------------------------------------------------------------

OUTCOMES = (Outcome("0" * 32, True, 0, 8000), Outcome("2" * 32, False, 2, 7500))


async def test_a_chunk_of_outcomes_is_written_and_read_as_it_always_was() -> None:
    chunks = HistoryChunks(InMemoryEventStore(), SeededIds(1))
    written = Stream(ref=stream_ref("s/x"), incarnation=1)
    await OutcomeHistory(chunks).archive(written, OUTCOMES)
    subject = transaction_outcomes(stream_ref("s/x"), 1, 0)
    if os.environ.get("REWRITE_GOLDEN") == "1":
        body = await chunks.read(subject)
        (GOLDEN / "outcome_chunk_format_1.json").write_bytes(body + b"\n")

    assert read("outcome_chunk_format_1") == await chunks.read(subject)
    reading = replace(written, outcome_chunks=(OutcomeChunk(0, "0" * 32, "2" * 32, 8000),))
    for outcome in OUTCOMES:
        assert await OutcomeHistory(chunks).find(reading, outcome.transaction_id) == outcome
    assert await OutcomeHistory(chunks).find(reading, "1" * 32) is None


# --- history chunks -----------------------------------------------------------------------------

CHUNK = (
    EpochRecord(0, 0, 1000, (SegmentRange(segment_id(0, 0), KeyRange(0.0, 1.0)),)),
    EpochRecord(
        1,
        1,
        2000,
        (
            SegmentRange(segment_id(1, 1), KeyRange(0.0, 0.3333333333333333)),
            SegmentRange(segment_id(1, 2), KeyRange(0.3333333333333333, 1.0)),
        ),
        (SealedSegment(segment_id(0, 0), 77),),
        causes.UPDATE,
    ),
)
CAUSES_BEFORE = (causes.CREATE, causes.MANUAL)


def test_a_history_chunk_is_written_and_read_as_it_always_was() -> None:
    body = archive.encode_chunk(CHUNK)
    if os.environ.get("REWRITE_GOLDEN") == "1":
        (GOLDEN / "history_chunk_format_2.json").write_bytes(body + b"\n")

    assert read("history_chunk_format_2") == body
    assert archive.decode_chunk(body, 0) == CHUNK
    assert json.loads(body)["format"] == archive.CHUNK_FORMAT


def test_a_history_chunk_that_was_stored_before_there_were_causes_is_read() -> None:
    found = archive.decode_chunk(read("history_chunk_format_1"), 0)

    assert [record.cause for record in found] == list(CAUSES_BEFORE)
    assert found[1].sealed == CHUNK[1].sealed


async def test_a_chunk_that_an_earlier_release_stored_is_the_same_chunk() -> None:
    store = InMemoryEventStore()
    chunks = HistoryChunks(store, SeededIds(1))
    stream = Stream(ref=stream_ref("s/x"), incarnation=1)
    await chunks.put(stream_history(stream_ref("s/x"), 1, 0), read("history_chunk_format_1"))

    await Histories(chunks).archive(stream, CHUNK)
    await Histories(chunks).archive(stream, tuple(replace(r, cause=causes.MANUAL) for r in CHUNK))

    other = (CHUNK[0], replace(CHUNK[1], created_ms=2001))
    with pytest.raises(CorruptEvent):
        await Histories(chunks).archive(stream, other)


# --- causes of epochs ---------------------------------------------------------------------------


def test_a_scale_that_was_stored_before_there_were_causes_is_manual() -> None:
    state = STREAM.fold(Stream(), stored("stream_creating_1"))
    for name in ("stream_joined_scope_1", "stream_created_1", "stream_scaling_1_without_cause"):
        state = STREAM.fold(state, stored(name))
    for name in ("stream_successors_made_1", "stream_scaled_1"):
        state = STREAM.fold(state, stored(name))

    assert [record.cause for record in state.epochs] == [causes.CREATE, causes.MANUAL]


def test_a_snapshot_of_before_there_were_causes_tells_scales_and_rolls_apart() -> None:
    message = replace(
        stored("stream_created_1"),
        kind=KIND_SNAPSHOT,
        body=read("stream_state_1_without_causes"),
    )

    state = STREAM.fold(Stream(), message)

    found = [causes.CREATE, causes.MANUAL, causes.ROLL, causes.ROLL]
    assert [record.cause for record in state.epochs] == found
    assert [intent.scale and intent.scale.cause for intent in state.intents] == [causes.MANUAL]
    assert STREAM.states.validate_json(STREAM.encode_state(state)) == state


def test_a_cause_of_a_later_release_is_kept_and_told() -> None:
    event = read("stream_scaling_1").replace(b'"update"', b'"policy-split"')
    state = STREAM.fold(Stream(), stored("stream_creating_1"))
    for name in ("stream_joined_scope_1", "stream_created_1"):
        state = STREAM.fold(state, stored(name))
    state = STREAM.fold(state, replace(stored("stream_scaling_1"), body=b"[%s]" % event))
    for name in ("stream_successors_made_1", "stream_scaled_1"):
        state = STREAM.fold(state, stored(name))

    assert next(epochs_before(History(state.epochs), None)).cause == "policy-split"
