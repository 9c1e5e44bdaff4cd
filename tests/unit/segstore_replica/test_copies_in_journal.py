"""Copies in a journal whose writes are performed elsewhere, and take time."""

import asyncio

from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.domain.log.stream.messages import NOTHING
from kit.copies_world import CONTAINER, LOG, CopyStore, Gate, Leader, Listening
from kit.deferred_commits import DeferredCommits
from kit.simdisk import SimDisk
from kit.virtual_time import run_virtual


def test_a_copy_is_reset_while_a_message_of_its_older_life_is_being_written() -> None:
    async def main() -> None:
        disk, writes, leader, caller = SimDisk(), Gate(), Leader(), Listening()
        loop = asyncio.get_running_loop()
        journal = open_journal(
            disk, ids=SeededIds(1), schedule=loop.call_soon, commits=DeferredCommits(writes)
        )
        store = CopyStore(journal, loop.call_soon)
        leader.open(5)
        first = await store.fed_copy(leader, caller, 5)
        writes.held = True
        store.append(leader.frame(), caller, 5)
        await store.settled()
        reset = loop.create_task(store.copies.reset(CONTAINER, LOG, 5, NOTHING, caller))
        await asyncio.sleep(0.1)
        assert not reset.done()
        writes.open()
        state = await reset
        assert state.copy_id != first.copy_id
        again = Leader()
        store.append(again.open(5), caller, 5)
        await store.settled()
        assert (await store.copy()).history.end == again.history.end

    run_virtual(main())
