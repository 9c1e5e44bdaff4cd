"""Writes the demo's rows, day by day, while the stream is scaled and, if asked, stores are killed.

A crash is a SIGKILL of the segment store while events are in flight: sent and not acknowledged. The
cluster restarts the store; the writer gets no notice.
"""

import asyncio
import os
import signal

from anabranch.cli.demo.check import Written
from anabranch.cli.demo.days import DayWriter, batches, days, write_one
from anabranch.cli.demo.group_reading import GroupReading
from anabranch.cli.demo.losing import LOSS_PART, Pauses, StoreLoss
from anabranch.cli.demo.outcome import Plan, Writing
from anabranch.cli.demo.scaling import Scaling
from anabranch.cli.demo.steps import Steps
from anabranch.cli.up import EmbeddedCluster
from anabranch.cli.up.held import HeldParts
from anabranch.client import Client, Transaction
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import Clock

STORE_BACK_S = 60.0
READER_KILL_PART = 0.3
"""The share of the rows after which a reader of the group is killed."""


def crash_rows(rows: int, crashes: int) -> list[int]:
    """The row counts after which to crash: the middle of each of `crashes` equal parts."""
    return [rows * (2 * part + 1) // (2 * crashes) for part in range(crashes)]


class RowWriter:
    """Owns the crashes, and decides when to scale, to crash, and to kill a reader or a store.

    `held` keeps the store down whose disk is lost, if the plan has such a loss.
    """

    def __init__(
        self,
        plan: Plan,
        client: Client,
        cluster: EmbeddedCluster,
        *,
        held: HeldParts,
        reading: GroupReading,
        clock: Clock,
        steps: Steps,
    ) -> None:
        self._plan = plan
        self._client = client
        self._cluster = cluster
        self._held = held
        self._reading = reading
        self._clock = clock
        self._steps = steps
        self._crash_at = crash_rows(plan.source.count, plan.crash_count)
        self._reader_kill_at = round(plan.source.count * READER_KILL_PART)
        self._lose_at = round(plan.source.count * LOSS_PART)
        self._crashes = 0
        self._pauses = Pauses(0.0)

    async def run(self) -> Writing:
        """Write every row, and wait until all can be read."""
        begun_s = self._clock.monotonic()
        plan, written = self._plan, Written()
        stream, rows = plan.source.stream, plan.source.count
        self._steps.begin("writing", rows)
        self._pauses = Pauses(begun_s)
        async with asyncio.TaskGroup() as tasks, self._client.writer(stream) as writer:
            scaling = Scaling(self._client, stream, tasks, rows=rows, count=plan.scale_count)
            loss = self._store_loss(tasks) if plan.loses_store else None
            writing = DayWriter(writer, plan.draft_every)
            for day in days(plan.source.rows()):
                async with writing.day(day) as transaction:
                    for batch in batches(day.rows):
                        for row in batch:
                            await write_one(transaction, row)
                            written.add(row.event)
                        await asyncio.sleep(0)
                        await self._look(len(written.hashes), scaling, transaction)
                        if loss is not None:
                            loss.look(len(written.hashes), self._lose_at)
                self._pauses.progressed(self._clock.monotonic())
            await scaling.finish()
            lost = None if loss is None else await loss.finish()
            await writing.finish()
        seconds, pause_s = self._clock.monotonic() - begun_s, self._pauses.longest_s
        return Writing(written, writing.days, scaling.scales, self._crashes, seconds, pause_s, lost)

    def _store_loss(self, tasks: asyncio.TaskGroup) -> StoreLoss:
        return StoreLoss(
            self._client, self._cluster, self._held,
            tasks=tasks, clock=self._clock, remark=self._steps.remark,
        )  # fmt: skip

    async def _look(self, rows: int, scaling: Scaling, transaction: Transaction) -> None:
        """Begin the crash or scale that is due after `rows` written rows."""
        self._pauses.progressed(self._clock.monotonic())
        scaling.look(rows)
        self._reading.look(rows, self._reader_kill_at)
        if self._crash_at and rows >= self._crash_at[0]:
            await self._crash(transaction)
        self._steps.advance(rows)

    async def _crash(self, transaction: Transaction) -> None:
        """Kill the segment store now if events are in flight, else at the next batch."""
        victims = self._cluster.segstore_pids()
        if not victims or transaction.used_bytes == 0:
            return
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        self._crash_at.pop(0)
        self._crashes += 1
        self._steps.remark(f"killed the segment store: {self._crashes} of {self._plan.crash_count}")
        await self._until_restarted(victims)

    async def _until_restarted(self, victims: list[int]) -> None:
        deadline_s = self._clock.monotonic() + STORE_BACK_S
        while not self._cluster.segstore_pids() or self._cluster.segstore_pids() == victims:
            if self._clock.monotonic() > deadline_s:
                raise Unavailable("the segment store was not started again in time")
            await self._clock.sleep(0.02)
