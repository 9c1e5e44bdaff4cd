"""Keeps the open transactions of a client alive: one task for all of them.

The task pings the transactions of one stream together, about every third of the shortest of their
leases. It pings due streams concurrently, each at most until its next turn. If no reply comes, the
ping is repeated at the next turn, as long as the transaction is registered: only the controller
decides that a transaction has ended, and its answer goes to the registered owner.

State: the entries by stream, and when each stream is due, on the monotonic clock. The task begins
with the first entry and ends with the last one or with the client.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from anabranch.client.runtime import Runtime
from anabranch.client.wire.control import ControlPlane
from anabranch.common.contracts.transactions import (
    PINGS_MAX,
    PingTransaction,
    PingTransactions,
    TransactionPinged,
    TransactionsPinged,
)
from anabranch.common.errors import AnabranchError, NotFound
from anabranch.common.model.names import StreamRef
from anabranch.common.workflow.bounded import for_each

PINGS_PER_LEASE = 3
JITTER = 0.2
"""A turn comes earlier by up to this share."""


@dataclass(frozen=True, slots=True, eq=False)
class PingEntry:
    """A transaction to keep alive. `told` receives the answer to its ping; `gone` the loss of its
    stream."""

    transaction_id: str
    lease_ms: int
    told: Callable[[TransactionPinged], None]
    gone: Callable[[AnabranchError], None]


Life = tuple[StreamRef, int]
"""A stream and its incarnation."""


@dataclass(slots=True)
class _Pinged:
    due_s: float
    entries: dict[str, PingEntry] = field(default_factory=dict)

    @property
    def interval_s(self) -> float:
        return min(entry.lease_ms for entry in self.entries.values()) / 1000 / PINGS_PER_LEASE


class Pings:
    """The pings of one client."""

    def __init__(self, control: ControlPlane, runtime: Runtime) -> None:
        self._control = control
        self._runtime = runtime
        self._lives: dict[Life, _Pinged] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, life: Life, entry: PingEntry) -> None:
        """Ping the transaction from now on, until it is discarded."""
        pinged = self._lives.setdefault(life, _Pinged(float("inf")))
        pinged.entries[entry.transaction_id] = entry
        pinged.due_s = min(pinged.due_s, self._next(pinged))
        self._news.set()
        if self._task is None:
            self._runtime.open_parts.add(self)
            self._task = self._runtime.start(self._run())

    def discard(self, life: Life, entry: PingEntry) -> None:
        """Stop pinging the transaction. Idempotent."""
        pinged = self._lives.get(life)
        if pinged is None or pinged.entries.get(entry.transaction_id) is not entry:
            return
        del pinged.entries[entry.transaction_id]
        if not pinged.entries:
            del self._lives[life]
            self._news.set()

    async def close(self) -> None:
        """Stop. Idempotent. The transactions' leases then expire."""
        self._lives.clear()
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])

    def _next(self, pinged: _Pinged) -> float:
        runtime = self._runtime
        return runtime.clock.monotonic() + pinged.interval_s * (1 - JITTER * runtime.rng.random())

    async def _run(self) -> None:
        try:
            while self._lives:
                self._news.clear()
                await self._until(min(pinged.due_s for pinged in self._lives.values()))
                await self._ping_those_due()
        finally:
            self._task = None
            self._runtime.open_parts.discard(self)

    async def _until(self, due_s: float) -> None:
        """Wait until the time, or until an entry changes."""
        left_s = due_s - self._runtime.clock.monotonic()
        if left_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._news.wait()

    async def _ping_those_due(self) -> None:
        now_s = self._runtime.clock.monotonic()
        due = [life for life, pinged in self._lives.items() if pinged.due_s <= now_s]
        if not due:
            return
        patience_s = min(pinged.interval_s for pinged in self._lives.values())
        entries: dict[Life, tuple[PingEntry, ...]] = {}
        for life in due:
            pinged = self._lives[life]
            pinged.due_s = self._next(pinged)
            entries[life] = tuple(pinged.entries.values())

        async def ping(life: Life) -> None:
            await self._ping(life, entries[life], patience_s)

        await for_each(due, len(due), ping)

    async def _ping(self, life: Life, entries: tuple[PingEntry, ...], patience_s: float) -> None:
        for start in range(0, len(entries), PINGS_MAX):
            await self._ping_page(life, entries[start : start + PINGS_MAX], patience_s)

    async def _ping_page(
        self, life: Life, entries: tuple[PingEntry, ...], patience_s: float
    ) -> None:
        stream, incarnation = life
        query = PingTransactions(
            scope=stream.scope,
            stream=stream.stream,
            incarnation=incarnation,
            pings=tuple(PingTransaction(transaction_id=each.transaction_id) for each in entries),
        )
        try:
            async with asyncio.timeout(patience_s):
                answer = await self._control.query(
                    "ping_transactions", query, TransactionsPinged, timeout_s=patience_s
                )
        except NotFound as error:
            for entry in entries:
                entry.gone(error)
        except (AnabranchError, TimeoutError):
            return  # repeated at the next turn; a write or commit raises the error
        else:
            for entry, result in zip(entries, answer.results, strict=False):
                entry.told(result)
