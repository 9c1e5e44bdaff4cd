"""Saves a round of a view: performs the decisions of `PartitionView` for all partitions at once."""

from collections.abc import Callable, Iterable
from typing import Any

from anabranch.client.backoff import Backoff
from anabranch.client.tables.units import Performed
from anabranch.client.views.partition import PartitionView
from anabranch.client.views.ports import ViewTable
from anabranch.common.errors import OutcomeUnknown, Unavailable
from anabranch.common.runtime.clock import Clock


async def save(
    partitions: Iterable[PartitionView[Any, Any]],
    table: ViewTable[Any],
    clock: Clock,
    new_backoff: Callable[[], Backoff],
) -> None:
    """Save the shares that the partitions have begun, until all of them are done.

    An update that another process was faster than is decided again. A round may be cancelled at any
    await. Raises the errors of the table and of the fold, and Unavailable if nothing was saved for
    as long as `new_backoff` permits.
    """
    backoff = new_backoff()
    busy = [each for each in partitions if not each.is_done]
    while busy:
        await _read(busy, table)
        if await _write(busy, table):
            backoff.progress()
        elif (pause_s := backoff.failed(clock.monotonic())) is not None:
            await clock.sleep(pause_s)
        else:
            raise Unavailable(
                "other processes change the rows of a view before it can save them",
                remedy="let fewer processes fold into the same rows, or try again",
            )
        busy = [each for each in busy if not each.is_done]


async def _read(busy: Iterable[PartitionView[Any, Any]], table: ViewTable[Any]) -> None:
    asked = [
        (each, keys, await table.look_up(each.index, keys))
        for each in busy
        if (keys := each.missing())
    ]
    for partition, keys, told in asked:
        partition.found(keys, await told)


async def _write(busy: Iterable[PartitionView[Any, Any]], table: ViewTable[Any]) -> bool:
    """Returns whether all updates were performed."""
    sent = [
        (each, await table.update(each.index, update))
        for each in busy
        if (update := each.next_update()) is not None
    ]
    hindered = 0
    for partition, told in sent:
        try:
            outcome = await told
        except OutcomeUnknown:
            partition.unclear()
            hindered += 1
            continue
        if isinstance(outcome, Performed):
            partition.performed(outcome)
        else:
            partition.refused(outcome)
            hindered += 1
    return hindered == 0 or hindered < len(sent)
