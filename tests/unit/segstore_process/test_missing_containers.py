"""What a store says while it is not ready: the containers that are not placed, and not open."""

from types import SimpleNamespace
from typing import cast

from anabranch.common.runtime.clock import SystemClock
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.catch_up import new_catch_up
from anabranch.segstore.shell.node.store import OpenContainer, Store
from kit.container_driver import ManualTime
from kit.store_parts import a_store


def a_store_of(container_count: int) -> Store:
    return a_store(container_count, new_catch_up(Cache(0), SystemClock(), ManualTime().call_later))


def opened(number: int) -> OpenContainer:
    return cast("OpenContainer", SimpleNamespace(container=SimpleNamespace(container=number)))


def test_a_store_waits_until_each_container_of_the_cluster_has_an_owner() -> None:
    store = a_store_of(3)
    store.assign(0)
    store.opened(opened(0))
    store.unassign(1)
    assert store.missing == "the controller has placed 2 of 3 containers"

    store.unassign(2)
    assert store.missing == ""


def test_a_store_counts_the_containers_that_it_has_not_opened_and_names_the_first() -> None:
    store = a_store_of(12)
    for number in range(12):
        store.assign(number)
    assert store.missing == "12 of 12 containers are not open: 0, 1, 2, 3, 4, 5, 6, 7, …"

    for number in range(11):
        store.opened(opened(number))
    assert store.missing == "1 of 12 containers are not open: 11"


def test_a_store_does_not_count_the_containers_of_topics_as_placed_ones() -> None:
    store = a_store_of(2)
    store.assign(0)
    store.opened(opened(0))
    store.unassign(1024)
    store.unassign(1025)
    assert store.missing == "the controller has placed 1 of 2 containers"

    store.unassign(1)
    assert store.missing == ""
    store.assign(1026)
    assert store.missing == "1 of 2 containers are not open: 1026"
