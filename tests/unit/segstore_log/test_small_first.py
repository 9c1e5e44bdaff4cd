"""Containers with little to write go before those with much, once; and nobody waits for ever."""

from collections.abc import Callable
from itertools import chain

import pytest

from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.group import (
    LARGE_SIZE_BYTES,
    SMALL_SIZE_BYTES,
    Taken,
    small_first,
)
from anabranch.segstore.adapters.journal.commits import InlineCommits
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.ports import ContainerLog, FrameContents, LogAddress
from kit.fixed_catalog import run_at_once
from kit.log_driver import Callbacks, ScriptedSource, replayed
from kit.simdisk import SimDisk

LONE, BULK = 0, 1
SMALL, LARGE = b"s" * 1000, b"l" * LARGE_SIZE_BYTES


class Waiting:
    """A view with a source that nobody asks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = ScriptedSource()

    def taken(self, *sizes: int) -> list[Taken["Waiting"]]:
        return [Taken(self, self.source.put(bytes(size))) for size in sizes]


def names(items: list[Taken[Waiting]]) -> str:
    return "".join(item.view.name for item in items)


def test_a_container_goes_with_all_of_its_frames_or_waits_with_all_of_them() -> None:
    lone, bulk = Waiting("a"), Waiting("b")
    mixed = [*bulk.taken(10), *lone.taken(10), *bulk.taken(LARGE_SIZE_BYTES), *lone.taken(20)]

    now, later = small_first(mixed)

    assert (names(now), names(later)) == ("aa", "bb")
    assert [item.contents.first_sequence for item in later] == [1, 2]


@pytest.mark.parametrize(
    "sizes",
    [
        ([10], [20]),
        ([SMALL_SIZE_BYTES + 1], [LARGE_SIZE_BYTES]),
        ([10], [LARGE_SIZE_BYTES - 1]),
        ([SMALL_SIZE_BYTES // 2] * 3, [LARGE_SIZE_BYTES]),
    ],
)
def test_containers_of_like_size_share_a_write(sizes: tuple[list[int], list[int]]) -> None:
    taken = list(chain(*(Waiting("ab"[n]).taken(*of) for n, of in enumerate(sizes))))
    assert small_first(taken) == (taken, [])


class NotedSource(ScriptedSource):
    """Notes in `order` when a frame of its container is durable, and calls `then`."""

    def __init__(self, container: int, order: list[int]) -> None:
        super().__init__()
        self._container = container
        self._order = order
        self.then: Callable[[], None] = lambda: None

    def frame_durable(self, contents: FrameContents, address: LogAddress) -> None:
        """See `FrameSource`."""
        super().frame_durable(contents, address)
        self._order.append(self._container)
        self.then()


class Opened:
    """A journal with two containers, which counts its turns of the loop."""

    def __init__(self, disk: SimDisk, *, is_cheap: bool = True) -> None:
        self.callbacks = Callbacks()
        commits = InlineCommits()
        commits.is_cheap = is_cheap
        self.journal = open_journal(
            disk, ids=SeededIds(1), schedule=self.callbacks, file_size=1 << 22, commits=commits
        )
        self.order: list[int] = []
        self.sources = {number: NotedSource(number, self.order) for number in (LONE, BULK)}
        self.views: dict[int, ContainerLog] = {}
        for container, source in self.sources.items():
            run_at_once(self.journal.create_log(container, f"log-{container}"))
            opening = self.journal.open_log(container, f"log-{container}", 1, source)
            self.views[container] = run_at_once(opening)

    def put(self, container: int, payload: bytes) -> None:
        self.sources[container].put(payload)
        self.views[container].ready()


def test_an_event_that_arrives_behind_megabytes_is_durable_in_the_write_before_them() -> None:
    opened = Opened(SimDisk())
    opened.put(BULK, LARGE)
    opened.put(LONE, SMALL)
    opened.callbacks.run()
    assert opened.order == [LONE, BULK]
    assert replayed(opened.views[BULK]) == {1: LARGE}
    assert replayed(opened.views[LONE]) == {1: SMALL}


def test_megabytes_that_waited_once_do_not_wait_again_for_small_ones() -> None:
    opened = Opened(SimDisk())

    def again() -> None:
        if len(opened.order) < 4:
            opened.put(LONE, SMALL)

    opened.sources[LONE].then = again
    opened.put(LONE, SMALL)
    opened.put(BULK, LARGE)
    opened.callbacks.run()
    assert opened.order[:2] == [LONE, BULK]
    assert opened.order.count(LONE) == len(opened.order) - 1


def test_where_each_write_is_costly_all_share_one() -> None:
    opened = Opened(SimDisk(), is_cheap=False)
    opened.put(BULK, LARGE)
    opened.put(LONE, SMALL)
    opened.callbacks.run()
    assert opened.order == [BULK, LONE]


def test_frames_that_wait_their_turn_are_dropped_with_their_view() -> None:
    opened = Opened(SimDisk())
    opened.put(BULK, LARGE)
    opened.put(LONE, SMALL)
    opened.sources[LONE].then = opened.views[BULK].close
    opened.callbacks.run()
    assert opened.order == [LONE]
    assert not opened.sources[BULK].durable
