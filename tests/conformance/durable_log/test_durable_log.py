"""What every `ports.DurableDataLog` does: journals on both disks and by both writers, memory,
replicas, and streams of servers."""

import pytest

from anabranch.common.errors import (
    Deposed,
    LogNotHere,
    ObjectNotFound,
    Unavailable,
)
from anabranch.segstore.ports import DurableDataLog
from kit.log_driver import ScriptedSource
from kit.log_places import AnyPlace


def opened(place: AnyPlace, epoch: int = 1) -> tuple[DurableDataLog, ScriptedSource]:
    log = place.open()
    place.call(log.create_log(0, "log-0"))
    return log, ScriptedSource()


def test_frames_are_told_in_order_and_replayed_after_reopening(
    place: AnyPlace,
) -> None:
    log, source = opened(place)
    view = place.call(log.open_log(0, "log-0", 1, source))
    for index in range(30):
        source.put(b"%03d" % index * 100)
        if index % 4 == 0:
            view.ready()
            place.settle()
    view.ready()
    place.settle()
    assert list(source.durable) == list(range(1, 31))
    assert source.durable == source.taken
    assert place.replayed(view) == source.taken
    log.close()
    again = place.call(place.open().open_log(0, "log-0", 2, ScriptedSource()))
    assert place.replayed(again) == source.taken
    assert list(place.replayed(again, 17)) == list(range(18, 31))


def test_a_frame_is_read_by_its_address(place: AnyPlace) -> None:
    log, source = opened(place)
    view = place.call(log.open_log(0, "log-0", 1, source))
    source.put(b"first")
    source.put(b"")
    source.put(b"x" * 10_000)
    view.ready()
    place.settle()
    for sequence, address in source.addresses.items():
        assert place.call(view.read_aside(address)) == source.taken[sequence]
        assert address.payload_size == len(source.taken[sequence])


def test_a_frame_that_was_released_is_not_found(place: AnyPlace) -> None:
    log, source = opened(place)
    view = place.call(log.open_log(0, "log-0", 1, source))
    for _ in range(3):
        source.put(b"x" * 3000)
        view.ready()
        place.settle()
    place.call(view.release(2))
    with pytest.raises(ObjectNotFound):
        place.call(view.read_aside(source.addresses[1]))
    assert place.call(view.read_aside(source.addresses[3])) == source.taken[3]


def test_a_log_that_is_not_in_the_list_is_not_an_empty_log(place: AnyPlace) -> None:
    log, source = opened(place)
    with pytest.raises(LogNotHere):
        place.call(log.open_log(1, "log-1", 1, source))
    with pytest.raises(LogNotHere):
        place.call(log.open_log(0, "another", 1, source))


def test_an_epoch_not_above_those_seen_is_refused(place: AnyPlace) -> None:
    log, source = opened(place)
    view = place.call(log.open_log(0, "log-0", 5, source))
    source.put(b"data")
    view.ready()
    place.settle()
    for epoch in (4, 5):
        with pytest.raises(Deposed):
            place.call(log.open_log(0, "log-0", epoch, ScriptedSource()))
    again = place.open()
    with pytest.raises(Deposed):
        place.call(again.open_log(0, "log-0", 5, ScriptedSource()))
    assert place.call(again.open_log(0, "log-0", 6, ScriptedSource())).log_id == "log-0"


def test_a_log_that_fails_leaves_the_journal_and_the_other_logs(
    place: AnyPlace,
) -> None:
    log = place.open()
    sources = [ScriptedSource(), ScriptedSource()]
    for container, source in enumerate(sources):
        place.call(log.create_log(container, f"log-{container}"))
        view = place.call(log.open_log(container, f"log-{container}", 1, source))
    place.call(log.open_log(0, "log-0", 2, ScriptedSource()))
    sources[1].put(b"goes on")
    view.ready()
    place.settle()
    assert log.failure is None
    assert [type(failure) for failure in sources[0].failures] == [Deposed]
    assert sources[0].journal_failures == sources[1].failures == []
    assert sources[1].durable == {1: b"goes on"}


def test_released_frames_go_and_the_rest_stays(place: AnyPlace) -> None:
    log, source = opened(place)
    view = place.call(log.open_log(0, "log-0", 1, source))
    for _ in range(20):
        source.put(b"x" * 1000)
        view.ready()
        place.settle()
    place.call(view.release(15))
    assert list(place.replayed(view, 15)) == list(range(16, 21))
    log.close()
    again = place.call(place.open().open_log(0, "log-0", 2, ScriptedSource()))
    assert list(place.replayed(again, 15)) == list(range(16, 21))


def test_a_closed_view_takes_no_more_frames(place: AnyPlace) -> None:
    log, source = opened(place)
    view = place.call(log.open_log(0, "log-0", 1, source))
    source.put(b"data")
    view.ready()
    view.close()
    place.settle()
    view.ready()
    place.settle()
    assert source.taken == {}
    assert source.failures == []


def test_closing_tells_the_sources_once(place: AnyPlace) -> None:
    log, source = opened(place)
    view = place.call(log.open_log(0, "log-0", 1, source))
    source.put(b"data")
    view.ready()
    log.close()
    log.close()
    place.settle()
    assert source.durable == {}
    assert [type(failure) for failure in source.failures] == [Unavailable]
    with pytest.raises(Unavailable):
        place.call(log.open_log(0, "log-0", 2, source))


def test_a_log_that_was_removed_leaves_nothing_to_the_next_one(
    place: AnyPlace,
) -> None:
    log, source = opened(place)
    view = place.call(log.open_log(0, "log-0", 3, source))
    source.put(b"of the first log")
    view.ready()
    place.settle()
    view.close()
    place.call(log.remove_log(0, "log-0"))
    place.call(log.remove_log(0, "log-0"))
    assert place.call(log.find_log(0, "log-0")).listed is None
    log.close()

    again = place.open()
    assert place.call(again.find_log(0, "log-0")).listed is None
    place.call(again.create_log(0, "log-1"))
    later = ScriptedSource(next_sequence=1)
    view = place.call(again.open_log(0, "log-1", 4, later))
    later.put(b"of the second log")
    view.ready()
    place.settle()
    again.close()
    last = place.call(place.open().open_log(0, "log-1", 5, ScriptedSource()))
    assert place.replayed(last) == {1: b"of the second log"}
