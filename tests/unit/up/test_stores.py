"""Which segment stores a local cluster starts with, and the SPUs that they are."""

import pytest

from anabranch.cli.up.stores import (
    KnownStores,
    StoreSpec,
    known_in,
    main_replicas,
    named_parts,
    store_of,
    stores_at_start,
)
from anabranch.common.provisioning.ports import WantedSpu

MAIN_0 = StoreSpec("segstore", "main-0", "main")
MAIN_1 = StoreSpec("segstore-2", "main-1", "main")
EXTRA = StoreSpec("segstore-extra-0", "extra-0", "extra", "left", 5, (("A", "b"),))


def test_a_new_directory_starts_the_stores_of_the_group_main() -> None:
    assert stores_at_start(KnownStores(), None) == (MAIN_0,)
    assert stores_at_start(KnownStores(), 2) == (MAIN_0, MAIN_1)
    assert (main_replicas(KnownStores(), None), main_replicas(KnownStores(), 2)) == (1, 2)


def test_the_next_start_finds_the_stores_that_there_were() -> None:
    known = KnownStores(managed=(EXTRA, MAIN_0, MAIN_1))
    assert known_in(known.as_text()) == known
    assert stores_at_start(known, None) == (EXTRA, MAIN_0, MAIN_1)
    assert main_replicas(known, None) is None


def test_with_fewer_stores_the_others_start_to_be_drained() -> None:
    known = KnownStores(managed=(MAIN_0, MAIN_1))
    assert stores_at_start(known, 1) == (MAIN_0, MAIN_1)
    assert main_replicas(known, 1) == 1


def test_more_stores_join_the_group_main() -> None:
    known = KnownStores(managed=(EXTRA, MAIN_0))
    assert stores_at_start(known, 2) == (EXTRA, MAIN_0, MAIN_1)


def test_stores_of_an_earlier_release_keep_their_folders_and_draw_no_other_ids() -> None:
    known = KnownStores(custom=("segstore", "segstore-2"))
    both = (StoreSpec("segstore"), StoreSpec("segstore-2"))
    assert stores_at_start(known, None) == both
    assert stores_at_start(known, 1) == both[:1], "as in that release"
    assert stores_at_start(known, 3) == (*both, StoreSpec("segstore-3", "main-0", "main"))
    assert [main_replicas(known, wanted) for wanted in (None, 1, 3)] == [None, 0, 1]


def test_no_cluster_starts_without_a_store() -> None:
    assert stores_at_start(KnownStores(), 0) == (MAIN_0,)


def test_the_folders_of_two_stores_are_never_the_same() -> None:
    known = KnownStores(custom=("segstore",))
    spus = [WantedSpu(f"{group}-{i}", group, i) for group in ("main", "2", "x") for i in range(3)]
    parts = [*known.custom, *named_parts([store_of(spu, known) for spu in spus])]
    assert len(set(parts)) == len(parts)


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 2, "custom": [], "managed": []}'])
def test_a_list_that_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        known_in(text)
