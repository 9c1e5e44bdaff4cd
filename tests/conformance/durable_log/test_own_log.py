"""What journals and logs in memory do beside: one place for all containers of one process."""

import pytest

from anabranch.common.errors import Deposed, ObjectExists
from anabranch.segstore.ports import ContainerLog, DurableDataLog
from kit.log_driver import ScriptedSource
from kit.log_places import OwnPlace


def opened(place: OwnPlace) -> tuple[DurableDataLog, ScriptedSource]:
    log = place.open()
    place.call(log.create_log(0, "log-0"))
    return log, ScriptedSource()


def test_many_containers_share_a_log_and_keep_their_own_order(own: OwnPlace) -> None:
    log: DurableDataLog = own.open()
    sources = {container: ScriptedSource() for container in range(5)}
    views: dict[int, ContainerLog] = {}
    for container, source in sources.items():
        own.call(log.create_log(container, f"log-{container}"))
        views[container] = own.call(log.open_log(container, f"log-{container}", 1, source))
        for index in range(container + 1):
            source.put(b"%d-%d" % (container, index))
        views[container].ready()
    assert len(own.callbacks) == 1, "one commit serves them all"
    own.settle()
    for container, source in sources.items():
        assert len(source.durable) == container + 1
        assert own.replayed(views[container]) == source.taken


def test_the_list_of_logs_is_kept_and_never_changes(own: OwnPlace) -> None:
    log = own.open()
    own.call(log.create_log(3, "three"))
    own.call(log.create_log(3, "three"))
    with pytest.raises(ObjectExists):
        own.call(log.create_log(3, "other"))
    identity = log.journal_id
    log.close()
    again = own.open()
    assert dict(again.logs()) == {3: "three"}
    assert again.journal_id == identity


def test_a_journal_that_fails_takes_all_logs_with_it(own: OwnPlace) -> None:
    log: DurableDataLog = own.open()
    sources = [ScriptedSource(), ScriptedSource()]
    for container, source in enumerate(sources):
        own.call(log.create_log(container, f"log-{container}"))
        view = own.call(log.open_log(container, f"log-{container}", 1, source))
    own.open()
    sources[1].put(b"never")
    view.ready()
    own.settle()
    assert isinstance(log.failure, Deposed)
    for source in sources:
        assert source.journal_failures == source.failures == [log.failure]


def test_a_second_opener_deposes_the_first_which_acknowledges_nothing_more(
    own: OwnPlace,
) -> None:
    log, source = opened(own)
    view = own.call(log.open_log(0, "log-0", 1, source))
    source.put(b"before")
    view.ready()
    own.settle()
    successor: DurableDataLog = own.open()
    source.put(b"after")
    view.ready()
    own.settle()
    assert source.durable == {1: b"before"}
    assert [type(failure) for failure in source.failures] == [Deposed]
    assert own.replayed(own.call(successor.open_log(0, "log-0", 2, ScriptedSource()))) == {
        1: b"before"
    }
    with pytest.raises(Deposed):
        own.call(log.create_log(7, "late"))
    assert own.call(successor.find_log(7, "late")).listed is None


def test_a_log_that_was_removed_pins_no_others_frames(own: OwnPlace) -> None:
    log, source = opened(own)
    view = own.call(log.open_log(0, "log-0", 1, source))
    source.put(b"x" * 2000)
    view.ready()
    own.settle()
    view.close()
    own.call(log.remove_log(0, "log-0"))
    own.call(log.create_log(1, "log-1"))
    other = ScriptedSource()
    kept = own.call(log.open_log(1, "log-1", 1, other))
    other.put(b"kept")
    kept.ready()
    own.settle()
    log.close()
    again: DurableDataLog = own.open()
    view = own.call(again.open_log(1, "log-1", 2, ScriptedSource()))
    assert own.replayed(view) == {1: b"kept"}


def test_a_container_opened_again_in_the_process_deposes_its_older_view(
    own: OwnPlace,
) -> None:
    log, source = opened(own)
    older = own.call(log.open_log(0, "log-0", 1, source))
    source.put(b"one")
    older.ready()
    own.settle()
    source.put(b"never")
    older.ready()
    follower = ScriptedSource(next_sequence=2)
    newer = own.call(log.open_log(0, "log-0", 2, follower))
    older.ready()
    follower.put(b"two")
    newer.ready()
    own.settle()
    assert [type(failure) for failure in source.failures] == [Deposed]
    assert own.replayed(newer) == {1: b"one", 2: b"two"}
