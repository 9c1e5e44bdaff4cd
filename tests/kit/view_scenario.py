"""Seeded random lives of a view: processes that run it, and whatever goes wrong.

Each seed has the blows of `group_scenario`, on a stream that is scaled while the view runs:
processes crash, stand still beyond their lease and wake, are put offline by mistake, are cut off;
the group's log is away; the group is reset to an earlier place. Requests to the table get lost, and
are performed late. In the end every row is the plain fold of its events.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from unittest.mock import patch

from anabranch.client.groups import balance
from anabranch.client.views import partition
from anabranch.common.model.reader_group import ReaderGroupConfig
from kit.group_scenario import ANYTHING, Focus, Trouble, _give_past, _told
from kit.group_streams import SimStream
from kit.group_world import Habits, World, config_of, streams_of
from kit.rng import Random, seeded
from kit.view_world import SimTable, SimViewReader, wrong_rows
from kit.virtual_time import run_virtual

LATE_S = 15.0
"""Within which every request that was ever sent has been performed, or never will be."""
ZOMBIES = Focus(blows=("_freeze", "_put_offline", "_cut_off"), think_s=(0.0,), lease_ms=(3_000,))
RESETS = Focus(blows=("_reset", "_crash"), past_max=40)


def random_view(seed: int, focus: Focus = ANYTHING) -> Mapping[str, int]:
    """One view of this seed; what it counted. Raises AssertionError if a row is wrong."""
    rng = seeded(seed)
    with (
        patch.object(balance, "LAG_UNIT_BYTES", rng.choice((20, 16_000_000))),
        patch.object(partition, "STEP_ROWS_MAX", rng.choice((2, 3, 4096))),
        patch.object(partition, "STEP_SIZE_BYTES_MAX", rng.choice((30, 4_000_000))),
    ):
        try:
            return run_virtual(_live_through(rng, focus))
        except BaseExceptionGroup as failed:
            raise _told(failed) from failed


async def _live_through(rng: Random, focus: Focus) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    streams = streams_of(rng, counts, 1)
    _give_past(streams[0], rng, 0, focus)
    config = config_of(
        streams,
        lease_ms=rng.choice(focus.lease_ms),
        automatic_checkpoint_ms=rng.choice((0, 0, 4_000)),
    )
    world = ViewWorld(rng, streams, config)
    world.counts.update(counts)
    table = SimTable(world, rng.choice((1, 3)))
    start = world.log.state.positions()
    async with asyncio.TaskGroup() as group:
        trouble = ViewTrouble(world, group, focus, table)
        await trouble.live()
        await trouble.end()
    if world.failures:
        raise _told(world.failures[0])
    await asyncio.sleep(LATE_S)
    wrong = wrong_rows(world, table, start)
    if wrong is not None:
        raise AssertionError(wrong)
    return world.counts


class ViewWorld(World):
    """A group that is reset to no later place than it has reached."""

    def __init__(self, rng: Random, streams: list[SimStream], config: ReaderGroupConfig) -> None:
        super().__init__(rng, streams, config, is_bounded=False)
        self._first = self.log.state.positions()

    def restart_positions(self) -> Mapping[str, object]:  # type: ignore[override]
        """A complete checkpoint, or the first start."""
        complete = [each for each in self.log.state.checkpoints if each.is_complete]
        if complete and self.rng.random() < 0.5:
            return dict(self.rng.choice(complete).positions)
        return self._first


class ViewTrouble(Trouble):
    """All that happens to one view."""

    def __init__(
        self, world: World, group: asyncio.TaskGroup, focus: Focus, table: SimTable
    ) -> None:
        super().__init__(world, group, focus)
        self._table = table
        self._is_truncated = False

    def _start(self) -> None:
        rng = self._rng
        taken = {each.reader_id for each in self._world.going()}
        free = [name for name in self._names if name not in taken] or ["another"]
        habits = Habits(
            is_explicit=True,
            takes_batches=True,
            tells_checkpoints=False,
            cancels=False,
            think_s=0.0,
            slow_s=0.0,
            save_interval_s=rng.choice((0.5, 1.0, 3.0)),
        )
        skew = rng.choice(self._focus.skews or (-1.0, 1.0, rng.uniform(-1, 1)))
        reader = SimViewReader(self._world, rng.choice(free), habits, skew)
        reader.table = self._table
        self._world.readers.append(reader)
        reader.start(self._group)
