"""The mirror of objects: any interleaving of changes, lost watches and lists ends in the same
objects, and no listener misses a deletion."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.model.objects import Spu, SpuResolution, SpuSpec, SpuStatus
from anabranch.controller.cluster.objects.local_store import (
    Change,
    Changed,
    Damaged,
    Deltas,
    Facet,
    Gone,
    LocalStore,
    Nothing,
    SyncAll,
)

SpuChange = Change[SpuSpec, SpuStatus]
SpuStore = LocalStore[SpuSpec, SpuStatus]
ONLINE = SpuStatus(SpuResolution.ONLINE)
OFFLINE = SpuStatus(SpuResolution.OFFLINE)


def spu(key: str, revision: int, *, rack: str = "", status: SpuStatus = ONLINE) -> Spu:
    return Spu(key, SpuSpec(1, rack=rack), status, revision=revision)


def store_with(*objects: Spu) -> SpuStore:
    store: SpuStore = LocalStore()
    store.sync_all(objects)
    return store


# --- epochs --------------------------------------------------------------------------------------


def test_a_batch_of_changes_gets_one_epoch_and_is_counted_by_facet() -> None:
    store = store_with(spu("a", 1), spu("b", 2), spu("c", 3))

    changed = store.apply_changes(
        [
            spu("a", 4, rack="x"),
            spu("b", 5, status=OFFLINE),
            Gone("c", 6),
            spu("d", 7),
            replace(spu("d", 8), deleting=True),
        ]
    )

    assert changed == Changed(
        epoch=2, added=1, spec_updated=1, status_updated=1, meta_updated=1, deleted=1
    )
    assert store.epoch == 2


def test_objects_that_have_not_changed_since_the_full_list_have_no_stamps() -> None:
    store = store_with(spu("a", 1), spu("b", 2))
    assert not store._stamps

    store.apply_changes([spu("b", 3, status=OFFLINE)])
    assert store._stamps.keys() == {"b"}
    assert store.changes_since(1, Facet.SPEC) == Nothing(2)
    store.sync_all([spu("a", 1), spu("b", 3, status=OFFLINE)])
    assert not store._stamps


def test_changes_that_are_known_leave_the_epoch_and_wake_nobody() -> None:
    store = store_with(spu("a", 5))
    woken: list[int] = []
    store.on_change(lambda: woken.append(store.epoch))

    assert store.apply_changes([spu("a", 5, rack="x"), spu("a", 4), Gone("b", 9)]) is None
    assert store.objects == {"a": spu("a", 5)}
    assert (store.epoch, woken) == (1, [])


def test_an_older_version_is_dropped_and_so_is_an_older_deletion() -> None:
    store = store_with(spu("a", 5))
    store.apply_changes([Gone("a", 3), spu("a", 4, rack="x")])
    assert store.objects == {"a": spu("a", 5)}

    store.apply_changes([Gone("a", 7)])
    store.apply_changes([spu("a", 6)])
    assert store.objects == {}


def test_a_facet_shows_only_what_changed_in_it() -> None:
    store = store_with(spu("a", 1), spu("b", 2))
    store.apply_changes([spu("a", 3, rack="x"), spu("b", 4, status=OFFLINE)])

    assert store.changes_since(1, Facet.SPEC) == Deltas(2, (spu("a", 3, rack="x"),), ())
    assert store.changes_since(1, Facet.STATUS) == Deltas(2, (spu("b", 4, status=OFFLINE),), ())
    assert store.changes_since(1, Facet.META) == Nothing(2)


def test_a_new_revision_with_the_same_content_is_seen() -> None:
    store = store_with(spu("a", 1))
    store.apply_changes([spu("a", 2)])

    assert store.changes_since(1, Facet.META) == Deltas(2, (spu("a", 2),), ())


def test_a_listener_from_before_the_last_list_gets_all_objects() -> None:
    store = store_with(spu("a", 1))
    store.apply_changes([Gone("a", 2)])
    assert store.changes_since(1) == Deltas(2, (), (spu("a", 1),))

    store.sync_all([])

    assert store.changes_since(2) == SyncAll(3, ())
    assert store.changes_since(3) == Nothing(3)


def test_before_the_first_list_nothing_is_known() -> None:
    store: SpuStore = LocalStore()
    assert not store.listed
    assert store.changes_since(0) == Nothing(0)
    store.sync_all([])
    assert store.listed
    assert store.changes_since(0) == SyncAll(1, ())


def test_an_object_that_was_deleted_and_created_again_is_told_as_both() -> None:
    store = store_with(spu("a", 1))
    store.apply_changes([Gone("a", 2), spu("a", 3, rack="x")])

    assert store.changes_since(1) == Deltas(2, (spu("a", 3, rack="x"),), (spu("a", 1),))


def test_children_follow_their_owner() -> None:
    store: SpuStore = LocalStore()
    mine, moved = replace(spu("a", 1), owner="p"), replace(spu("b", 2), owner="p")
    store.sync_all([mine, moved, spu("c", 3)])
    assert store.children("p") == {"a": mine, "b": moved}

    elsewhere = replace(moved, owner="q", revision=4)
    store.apply_changes([elsewhere, Gone("a", 5)])

    assert store.children("p") == {}
    assert store.children("q") == {"b": elsewhere}
    assert store.children("") == {}


# --- damage --------------------------------------------------------------------------------------


def test_a_damaged_object_keeps_its_last_good_version_and_is_not_deleted() -> None:
    store = store_with(spu("a", 1))
    store.apply_changes([Damaged("a", 2)])
    store.sync_all([], [Damaged("a", 2), Damaged("b", 3)])

    assert store.objects == {"a": spu("a", 1)}
    assert store.damaged == {"a": 2, "b": 3}


def test_a_damaged_object_that_is_replaced_or_deleted_is_no_longer_damaged() -> None:
    store = store_with()
    store.apply_changes([Damaged("a", 1), Damaged("b", 2)])
    store.apply_changes([spu("a", 3), Gone("b", 4)])

    assert store.damaged == {}
    assert store.objects == {"a": spu("a", 3)}


# --- any interleaving ----------------------------------------------------------------------------

KEYS = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.sampled_from(["", "x", "y"])),
        st.tuples(st.just("delete"), KEYS, st.just("")),
        st.tuples(st.just("deliver"), st.integers(1, 4), st.just("")),
        st.tuples(st.just("lose"), st.just(0), st.just("")),
        st.tuples(st.just("list"), st.just(0), st.just("")),
        st.tuples(st.just("look"), st.integers(0, 1), st.just("")),
    ),
    max_size=60,
)


class Follower:
    """A listener that keeps what it was told of."""

    def __init__(self) -> None:
        self.seen = 0
        self.objects: dict[str, Spu] = {}

    def look(self, store: SpuStore) -> None:
        found = store.changes_since(self.seen)
        self.seen = found.epoch
        match found:
            case SyncAll(_, objects):
                self.objects = {one.key: one for one in objects}
            case Deltas(_, updated, deleted):
                for one in deleted:
                    self.objects.pop(one.key, None)
                self.objects.update({one.key: one for one in updated})
            case Nothing():
                return


class World:
    """A bucket with its log of changes, a watch that may be lost, a mirror, and two listeners."""

    def __init__(self) -> None:
        self.stored: dict[str, Spu] = {}
        self.log: list[SpuChange] = []
        self.at: int | None = None
        """The next change that the watch brings; None: there is no watch."""
        self.mirror: SpuStore = LocalStore()
        self.followers = [Follower(), Follower()]

    def step(self, what: str, which: str | int, rack: str) -> None:
        match what, which:
            case "put", str():
                self.stored[which] = spu(which, len(self.log) + 1, rack=rack)
                self.log.append(self.stored[which])
            case "delete", str() if self.stored.pop(which, None) is not None:
                self.log.append(Gone(which, len(self.log) + 1))
            case "deliver", int() if self.at is not None:
                self.mirror.apply_changes(self.log[self.at : self.at + which])
                self.at = min(self.at + which, len(self.log))
            case "lose", _:
                self.at = None
            case "list", _:
                self.mirror.sync_all(list(self.stored.values()))
                self.at = len(self.log)
            case "look", int():
                self.followers[which].look(self.mirror)

    def settle(self) -> None:
        """All that is stored reaches the mirror, by the watch if there is one."""
        self.step("list" if self.at is None else "deliver", len(self.log), "")
        for follower in self.followers:
            follower.look(self.mirror)


@given(STEPS)
def test_any_interleaving_ends_in_the_same_objects(
    steps: list[tuple[str, str | int, str]],
) -> None:
    world = World()
    for what, which, rack in steps:
        world.step(what, which, rack)
    world.settle()

    assert world.mirror.objects == world.stored
    for follower in world.followers:
        assert follower.objects == world.stored
