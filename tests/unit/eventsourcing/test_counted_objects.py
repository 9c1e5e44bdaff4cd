"""Which messages of a key-value bucket count, judged in the order of the stream."""

from anabranch.common.adapters.counted_objects import CountedObjects, ObjectsOfOneServer
from anabranch.common.eventsourcing.ports import StoredObject

KEY = "node"


def take(
    counted: CountedObjects, revision: int, expected: int | None, value: bytes
) -> StoredObject | None:
    headers = {}
    if expected is not None:
        headers["Nats-Expected-Last-Subject-Sequence"] = str(expected)
    return counted.take(StoredObject(KEY, value, revision), headers)


def test_of_two_writes_at_one_revision_the_first_one_counts() -> None:
    counted = CountedObjects()
    take(counted, 9, 0, b"alive")
    take(counted, 10, 9, b"over")

    assert take(counted, 11, 9, b"still alive") == StoredObject(KEY, b"over", 11)
    assert counted.present() == [StoredObject(KEY, b"over", 11)]


def test_a_write_that_names_a_void_message_was_decided_behind_it_and_counts() -> None:
    counted = CountedObjects()
    take(counted, 9, 0, b"one")
    take(counted, 10, 9, b"two")
    take(counted, 11, 9, b"void")

    assert take(counted, 12, 10, b"too late") == StoredObject(KEY, b"two", 12)
    assert take(counted, 13, 12, b"three") == StoredObject(KEY, b"three", 13)


def test_a_write_that_names_a_message_which_was_missed_counts() -> None:
    counted = CountedObjects()
    take(counted, 9, 0, b"one")

    assert take(counted, 11, 10, b"three") == StoredObject(KEY, b"three", 11)


def test_the_first_known_message_and_one_without_a_condition_count() -> None:
    counted = CountedObjects()

    assert take(counted, 9, 7, b"one") == StoredObject(KEY, b"one", 9)
    assert take(counted, 10, None, b"put") == StoredObject(KEY, b"put", 10)


def test_a_void_deletion_keeps_the_object_and_one_that_counts_ends_it() -> None:
    counted = CountedObjects()
    take(counted, 9, 0, b"one")
    take(counted, 10, 8, b"")
    assert counted.present() == [StoredObject(KEY, b"one", 10)]

    take(counted, 11, 10, b"")
    assert counted.present() == []


def test_a_message_that_was_taken_before_is_not_taken_again() -> None:
    counted = CountedObjects()
    take(counted, 9, 0, b"one")

    assert take(counted, 9, 0, b"one") is None


def test_equal_values_of_different_keys_and_a_key_that_comes_again_are_one_in_memory() -> None:
    counted = CountedObjects()
    key, again = "".join(["one", "1"]), "".join(["one", "1"])
    value, other = bytes(bytearray(b"online")), bytes(bytearray(b"online"))
    assert key is not again
    assert value is not other

    first = counted.take(StoredObject(key, b"offline", 1), {})
    newer = counted.take(StoredObject(again, value, 2), {})
    second = counted.take(StoredObject("two", other, 3), {})

    assert first is not None
    assert newer is not None
    assert second is not None
    assert newer.key is first.key
    assert second.value is newer.value


def test_on_one_server_every_message_behind_the_list_counts() -> None:
    counted = CountedObjects()
    take(counted, 9, 0, b"one")
    counted.take(StoredObject("gone", b"", 11), {})
    following = ObjectsOfOneServer(counted.newest())

    assert following.take(StoredObject("gone", b"", 11), {}) is None
    assert following.take(StoredObject(KEY, b"two", 12), {}) == StoredObject(KEY, b"two", 12)
    assert following.take(StoredObject(KEY, b"two", 12), {}) is None


def test_a_bucket_without_messages_has_no_newest_revision() -> None:
    assert CountedObjects().newest() == 0
