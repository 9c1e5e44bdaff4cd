"""Groups of appends: all of their blocks are stored, or none, and once."""

from collections.abc import Iterator
from itertools import count
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from anabranch.common.errors import Defect
from anabranch.common.wire.messages import (
    AppendedTogether,
    AppendTogether,
    BlockPlace,
    Failed,
    GetLengths,
    Lengths,
    Message,
    encode_message,
)
from anabranch.common.wire.packet import META_SIZE_BYTES_MAX
from anabranch.common.wire.requests import (
    GROUP_SEGMENTS_MAX,
    GROUP_SIZE_BYTES_MAX,
    LENGTHS_SEGMENTS_MAX,
)
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.operations import Operation
from anabranch.segstore.shell.container.throttle import ThrottleLimits
from anabranch.segstore.shell.container.topic_storage import TopicStorage
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from kit.container_driver import WRITER, ContainerDriver
from kit.tiered_driver import TieredDriver
from kit.together import ask, asked, made_group

A, B, C = (f"scope/stream/{number}.#epoch.0" for number in range(3))
OTHER = bytes(16)


def prepared(driver: ContainerDriver) -> ContainerDriver:
    for segment in (A, B, C):
        driver.create(segment)
    driver.commit()
    driver.take_replies()
    return driver


@pytest.fixture
def driver() -> ContainerDriver:
    return prepared(ContainerDriver())


@pytest.fixture
def tiered() -> Iterator[TieredDriver]:
    driver = TieredDriver(residency=ResidencyLimits(1))
    prepared(driver)
    yield driver
    driver.runner.close()


def code_of(message: Message) -> str:
    assert isinstance(message, Failed), message
    return message.code


def lengths(driver: ContainerDriver) -> tuple[int, ...]:
    answer = asked(driver, GetLengths(segment=A, segments=(A, B, C)))
    assert isinstance(answer, Lengths)
    return answer.lengths


def known(driver: ContainerDriver) -> list[Known]:
    return [driver.pending(segment) for segment in (A, B, C)]


# --- storing --------------------------------------------------------------------------------------


def test_its_blocks_become_durable_in_one_frame_and_visible_together(
    driver: ContainerDriver,
) -> None:
    frames = len(driver.frames.payloads)
    request, payload = made_group({A: (1, [b"a", b"b"]), B: (1, [b"c"])})
    ask(driver, request, payload)
    assert driver.take_replies() == []
    assert driver.content(A) + driver.content(B) == b""
    driver.commit()
    assert driver.take_replies() == [AppendedTogether()]
    assert driver.content(A) + driver.content(B) == payload
    assert len(driver.frames.payloads) == frames + 1


def test_a_defect_between_two_of_its_appends_ends_the_container_and_logs_neither(
    driver: ContainerDriver,
) -> None:
    before, payload = made_group({A: (1, [b"waits for the log"])})
    ask(driver, before, payload)
    real, calls = SegmentMap.apply, count(1)

    def strike(state: SegmentMap, sequence: int, operation: Operation) -> object:
        if next(calls) == 2:
            raise KeyError("nobody expected this")
        return real(state, sequence, operation)

    request, payload = made_group({B: (1, [b"b"]), C: (1, [b"c"])})
    with patch.object(SegmentMap, "apply", strike):
        ask(driver, request, payload)
    assert isinstance(driver.container.failure, Defect)
    assert [code_of(each) for each in driver.take_replies()] == ["unavailable"] * 2
    assert driver.container.take_frame(1 << 20) is None
    assert driver.throttle.pending == 0


def test_it_is_counted_as_its_appends_are(driver: ContainerDriver) -> None:
    request, payload = made_group({A: (1, [b"a", b"b"]), B: (1, [b"c"])})
    asked(driver, request, payload)
    asked(driver, request, payload)
    metrics = driver.metrics
    assert (metrics.appends, metrics.append_events, metrics.append_bytes) == (2, 3, len(payload))
    assert metrics.duplicates == 1
    counted = driver.container.notices.traffic.take().segments
    assert [(each.segment, each.events) for each in counted] == [(A, 2), (B, 1)]
    assert sum(each.size for each in counted) == len(payload)


def test_the_groups_of_a_writer_follow_each_other_in_each_segment(
    driver: ContainerDriver,
) -> None:
    for blocks in ({A: (1, [b"a"]), B: (1, [b"b"])}, {B: (2, [b"c"]), C: (1, [b"d"])}):
        ask(driver, *made_group(blocks))
    driver.append_once(2, [b"e"], segment=A)
    driver.commit()
    assert [type(reply).__name__ for reply in driver.take_replies()] == [
        "AppendedTogether", "AppendedTogether", "Appended",
    ]  # fmt: skip


def test_a_group_of_one_block_is_an_append(driver: ContainerDriver) -> None:
    assert asked(driver, *made_group({B: (1, [b"b"])})) == AppendedTogether()


# --- repeats --------------------------------------------------------------------------------------


def test_a_repeat_is_acknowledged_and_stored_once(driver: ContainerDriver) -> None:
    request, payload = made_group({A: (1, [b"a"]), B: (1, [b"b"])})
    ask(driver, request, payload)
    ask(driver, request, payload)
    assert driver.take_replies() == [], "the repeat depends on what it repeats"
    driver.commit()
    driver.crash()
    ask(driver, request, payload)
    driver.commit()
    assert driver.take_replies() == [AppendedTogether()] * 3
    assert driver.content(A) + driver.content(B) == payload


def test_a_repeat_is_acknowledged_after_a_seal(driver: ContainerDriver) -> None:
    request, payload = made_group({A: (1, [b"a"]), B: (1, [b"b"])})
    asked(driver, request, payload)
    driver.seal(B)
    assert asked(driver, request, payload) == AppendedTogether()
    driver.seal(A)
    assert asked(driver, request, payload) == AppendedTogether()


@pytest.mark.parametrize("ending", ["none", "seal"])
def test_a_group_that_is_stored_in_part_is_refused(driver: ContainerDriver, ending: str) -> None:
    driver.append_once(1, [b"a"], segment=A)
    if ending == "seal":
        driver.seal(B)
    answer = asked(driver, *made_group({A: (1, [b"a"]), B: (1, [b"b"])}))
    assert code_of(answer) == "partial-duplicate"
    assert isinstance(answer, Failed)
    assert answer.fields == {
        "segment": A, "stored": 1, "blocks": 2,
        "reason": "segment-sealed" if ending == "seal" else "",
    }  # fmt: skip
    assert driver.content(B) == b""


def test_a_repeat_about_a_deleted_segment_has_an_unknown_outcome(
    driver: ContainerDriver,
) -> None:
    request, payload = made_group({A: (1, [b"a"]), B: (1, [b"b"])})
    asked(driver, request, payload)
    driver.delete(B)
    assert code_of(asked(driver, request, payload)) == "outcome-unknown"


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", [A, B, C])
def test_a_sealed_segment_refuses_all_blocks(driver: ContainerDriver, refused: str) -> None:
    driver.seal(refused)
    driver.commit()
    before = known(driver)
    blocks = {segment: (1, [b"e"]) for segment in (A, B, C)}
    assert code_of(asked(driver, *made_group(blocks))) == "segment-sealed"
    assert known(driver) == before
    del blocks[refused]
    assert asked(driver, *made_group(blocks)) == AppendedTogether()


def test_a_gap_refuses_all_blocks(driver: ContainerDriver) -> None:
    driver.append_once(1, [b"a"], segment=B)
    before = known(driver)
    assert code_of(asked(driver, *made_group({A: (1, [b"a"]), B: (3, [b"b"])}))) == "event-gap"
    assert known(driver) == before


def _altered(request: AppendTogether, place: int, **fields: object) -> AppendTogether:
    places = list(request.places)
    places[place] = replace(places[place], **fields)
    return replace(request, places=tuple(places))


def test_a_request_that_disagrees_with_itself_is_refused(driver: ContainerDriver) -> None:
    request, payload = made_group({A: (1, [b"a"]), B: (1, [b"b"])})
    first, second = request.places
    wrong = [
        (replace(request, places=()), b""),
        (replace(request, places=()), payload),
        (replace(request, segment=B), payload),
        (replace(request, places=(first, replace(second, segment=A))), payload),
        (replace(request, places=(first,)), payload),
        (_altered(request, 1, size=second.size + 1), payload),
        (_altered(request, 0, size=-first.size), payload[second.size :]),
        (_altered(request, 1, count=2), payload),
        (_altered(request, 1, first_event_number=2), payload),
        (replace(request, writer_id=OTHER), payload),
        (replace(request, writer_id=b"short"), payload),
    ]
    before = known(driver)
    for altered, data in wrong:
        assert code_of(asked(driver, altered, data)) == "invalid-request", altered
    damaged = payload[:-1] + bytes([payload[-1] ^ 1])
    assert code_of(asked(driver, request, damaged)) == "corrupt-block"
    assert known(driver) == before


def test_negative_sizes_are_refused_even_if_they_add_up(driver: ContainerDriver) -> None:
    request, payload = made_group({segment: (1, [b"e"]) for segment in (A, B, C)})
    one, two, three = (place.size for place in request.places)
    request = _altered(_altered(request, 1, size=-three - one), 2, size=one + two + 2 * three)
    assert payload[one : one - three - one] == payload[one : one + two], "it would be the block"
    assert code_of(asked(driver, request, payload)) == "invalid-request"


def test_a_group_has_limits(driver: ContainerDriver) -> None:
    request, payload = made_group({A: (1, [b"a" * GROUP_SIZE_BYTES_MAX])})
    assert code_of(asked(driver, request, payload)) == "invalid-request"
    place = BlockPlace(A, 1, 1, 1)
    names = [f"scope/other/{number}.#epoch.0" for number in range(GROUP_SEGMENTS_MAX + 1)]
    places = tuple(replace(place, segment=name) for name in names)
    request = AppendTogether(segment=names[0], writer_id=WRITER, places=places)
    assert code_of(asked(driver, request, bytes(len(places)))) == "invalid-request"
    request = replace(request, places=places[:-1])
    assert code_of(asked(driver, request, bytes(len(places) - 1))) == "segment-not-found"


def test_a_store_over_its_limits_takes_the_whole_group_or_nothing() -> None:
    limits = ThrottleLimits(pending_soft=2000, pending_hard=2000)
    driver = prepared(ContainerDriver(limits=limits))
    before, pending = known(driver), driver.throttle.pending
    blocks = {segment: (1, [b"e" * 600]) for segment in (A, B, C)}
    ask(driver, *made_group(blocks))
    assert [code_of(reply) for reply in driver.take_replies()] == ["overloaded"]
    assert (known(driver), driver.throttle.pending) == (before, pending)
    del blocks[C]
    assert asked(driver, *made_group(blocks)) == AppendedTogether()


def test_a_store_without_storage_takes_no_group(driver: ContainerDriver) -> None:
    before = known(driver)
    driver.container._storage = TopicStorage(1)
    driver.container._storage.measured(2)
    request, payload = made_group({A: (1, [b"a"]), B: (1, [b"b"])})
    assert code_of(asked(driver, request, payload)) == "out-of-storage"
    assert known(driver) == before


# --- lengths --------------------------------------------------------------------------------------


def test_lengths_are_those_of_one_moment_and_wait_for_it(driver: ContainerDriver) -> None:
    request, payload = made_group({A: (1, [b"a"]), C: (1, [b"cc"])})
    ask(driver, request, payload)
    ask(driver, GetLengths(segment=A, segments=(A, B, C)))
    assert driver.take_replies() == []
    driver.commit()
    first, second = (place.size for place in request.places)
    assert driver.take_replies() == [AppendedTogether(), Lengths(lengths=(first, 0, second))]


def test_lengths_name_the_first_segment_that_is_missing(driver: ContainerDriver) -> None:
    driver.delete(B)
    answer = asked(driver, GetLengths(segment=A, segments=(A, B, "scope/stream/9.#epoch.0")))
    assert code_of(answer) == "segment-not-found"
    assert isinstance(answer, Failed)
    assert answer.fields["segment"] == B


def test_lengths_of_too_many_segments_or_of_none_are_refused(driver: ContainerDriver) -> None:
    names = tuple(f"scope/stream/{number}.#epoch.0" for number in range(LENGTHS_SEGMENTS_MAX))
    answer = asked(driver, GetLengths(segment=A, segments=names))
    assert code_of(answer) == "segment-not-found"
    for wrong in ((*names, "scope/stream/5000.#epoch.0"), (), (B, A)):
        answer = asked(driver, GetLengths(segment=A, segments=wrong))
        assert code_of(answer) == "invalid-request"


def test_segments_that_were_evicted_are_loaded_first(tiered: TieredDriver) -> None:
    request, payload = made_group({A: (1, [b"a"]), B: (1, [b"b"])})
    asked(tiered, request, payload)
    tiered.flush()
    tiered.load()
    for segment in (C, A, B):
        tiered.pending(segment)
    assert len(tiered.container.pending.segments) < 3, "something is evicted"
    assert asked(tiered, request, payload) == AppendedTogether()
    assert lengths(tiered) == (*(place.size for place in request.places), 0)


def test_names_of_one_stream_share_a_prefix(driver: ContainerDriver) -> None:
    request, payload = made_group({A: (1, [b"a"]), B: (1, [b"bb"])})
    asked(driver, request, payload)
    stream, _, first = A.rpartition("/")
    others = (first, B.rpartition("/")[2])
    answer = asked(driver, GetLengths(segment=A, prefix=f"{stream}/", segments=others))
    assert answer == Lengths(lengths=tuple(place.size for place in request.places))


def test_the_lengths_of_the_largest_stream_with_the_longest_names_fit_in_a_packet() -> None:
    prefix = f"{'s' * 255}/{'x' * 255}/"
    names = tuple(f"{2**31 - number}.#epoch.2147483647" for number in range(LENGTHS_SEGMENTS_MAX))
    request = GetLengths(segment=prefix + names[0], prefix=prefix, segments=names)
    assert request.names[-1] == prefix + names[-1]
    assert sum(map(len, encode_message(request, 1))) < META_SIZE_BYTES_MAX
