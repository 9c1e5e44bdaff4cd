"""The steps by which an owner opens a replicated log: docs/adr/0014-how-stores-replicate-a-log.md.

    the own copy promises the epoch ──► the register names the ISR, and the own copy is in it
      ──► the opening, synced by the own copy
      ──► each other member: promise, rewind to the last common message, the rest
      ──► a member that cannot is removed ──► every member has synced the opening: serve

A new log has no ISR yet: its first owner makes its own copy the first member. After an operator had
an out-of-date copy elected, tier 2 may know operations that the copy lacks. Then the log goes on
above them, so that no number is used twice.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from anabranch.common.errors import CorruptJournal, LogNotHere, Unavailable
from anabranch.segstore.adapters.replicated_log.led import Led
from anabranch.segstore.adapters.replicated_log.view import ReplicatedView
from anabranch.segstore.domain.log.replica.history import Counted
from anabranch.segstore.domain.log.replica.records import decode_record, encode_first
from anabranch.segstore.domain.log.stream.messages import Link
from anabranch.segstore.ports import FrameSource
from anabranch.segstore.ports_replica import Replicas

T = TypeVar("T")


async def open_view(led: Led, source: FrameSource, applied_sequence: int) -> ReplicatedView:
    """Open the log, whose own copy has promised the epoch.

    `applied_sequence`: the last operation that tier 2 has. Raises LogNotHere (the own copy is not
    in the ISR), Deposed, WrongHost, Unavailable, CorruptJournal.
    """
    replicas = await _replicas(led)
    await _continue_above(led, replicas, applied_sequence)
    opening = await _write_opening(led)
    view = ReplicatedView(led, replicas, opening, source)
    await view.open()
    return view


async def _replicas(led: Led) -> Replicas:
    register = led.around.register
    replicas = await _answer(led, register.read(led.container, led.container_epoch))
    if not replicas.isr:
        replicas = await _answer(
            led, register.change(led.container, led.container_epoch, (led.own,))
        )
    if led.own not in replicas.isr:
        raise LogNotHere(
            "this store's copy of the container's log is not in sync",
            remedy=f"`anabranch container explain {led.container}` tells which stores have the log",
            container=led.container, log_id=led.log_id, copy=led.copy.copy_id,
        )  # fmt: skip
    return replicas


async def _answer(led: Led, work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(led.around.pace.register_s):
            return await work
    except TimeoutError as error:
        raise Unavailable(
            "the placement did not answer in time", container=led.container
        ) from error


async def _continue_above(led: Led, replicas: Replicas, sequence: int) -> None:
    """Raise the end of a copy that was elected although it is not up to date."""
    end = led.copy.history.end
    if end.last_sequence >= sequence:
        return
    if replicas.isr != (led.own,):
        raise CorruptJournal(
            "an in-sync copy of the log lacks operations that tier 2 has",
            container=led.container, log_id=led.log_id, last=end.last_sequence, applied=sequence,
        )  # fmt: skip
    await led.copy.restart(
        Link(end.container_epoch, end.number, end.crc, sequence),
        container_epoch=led.container_epoch,
    )


async def _write_opening(led: Led) -> Counted:
    """Append the opening to the own copy, and wait for its sync."""
    copy = led.copy
    data = encode_first(led.container, led.container_epoch, copy.history.end, copy.seed)
    record = decode_record(data, copy.seed, 0)
    counted = copy.append(
        (data,), record.message, record.opening, lambda _: None,
        container_epoch=led.container_epoch,
    )  # fmt: skip
    await copy.written()
    return counted
