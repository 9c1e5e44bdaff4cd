"""W8 open: 10,000 open transactions in one controller, pinged and then left to expire.

`events`: pings, of a hundred transactions in a request, by four callers, one after the other as
often as that goes; most find that no deadline has to be stored again, as with clients that ping
three times a lease. `late_p99_ms`: how long after its stored deadline a transaction was ABORTED,
with its segments deleted; the deadlines are spread over more than half a minute. `B/transaction`:
what each makes the controller's memory grow. Asked for as internal clients do, over NATS.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import cycle
from typing import TypeVar

from nats.aio.client import Client as NatsClient

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts import subjects
from anabranch.common.contracts import transactions as t
from anabranch.common.contracts.base import Contract
from anabranch.common.model.transaction import TransactionState
from anabranch.common.runtime.nats_target import nats_target
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.machine import resident_bytes
from bench.stats import percentile
from bench.systems.anabranch import Anabranch
from bench.systems.port import Label, System
from bench.workloads.port import Meter

OPEN = 10_000
BEGINNERS = 32
PINGERS = 4
PINGS_PER_REQUEST = 100
PING_S = 3.0
LEASE_MS_MIN, LEASE_MS_MAX = 30_000, 50_000
"""Evenly from one to the other, so that not more come due in a second than half a minute allows."""
TIMEOUT_S = 30.0
EXPIRED_S_MAX = 180.0
LOOK_S = 1.0

A = TypeVar("A", bound=Contract)


class OpenTransactions:
    name = "W8 open"
    event_bytes: tuple[int, ...] = (0,)

    def __init__(self, settings: str) -> None:
        self._settings = settings
        self._before_bytes = 0

    def suits(self, label: Label) -> bool:
        return label.settings == self._settings and label.system == "anabranch"

    async def measure(
        self,
        system: System,
        case: Case,  # noqa: ARG002
        effort: Effort,  # noqa: ARG002
        clock: Stopwatch,
        *,
        warm_up: bool,
    ) -> Sample:
        assert isinstance(system, Anabranch), "needs a controller"
        async with system.named_stream() as name:
            client = await connect_nats(nats_target(system.endpoints_file), "open-transactions")
            try:
                load = _Load(client, name, clock)
                if warm_up:
                    await load.begin(BEGINNERS)
                    await load.abort_all()
                    # Later rounds use again what the first one took.
                    self._before_bytes = resident_bytes(system.pids_of("controller"))
                    return Sample(BEGINNERS, 1.0, None, verified=True)
                return await _measured(system, load, clock, self._before_bytes)
            finally:
                await client.close()


async def _measured(
    system: Anabranch, load: "_Load", clock: Stopwatch, before_bytes: int
) -> Sample:
    began = clock.now()
    await load.begin(OPEN)
    begin_s = clock.now() - began
    grown = resident_bytes(system.pids_of("controller")) - before_bytes
    meter = Meter(system, clock)
    pings = await load.ping(PING_S)
    seconds, cpu_seconds = meter.read()
    late_ms = await load.expire()
    notes = {
        "late_p50_ms": percentile(late_ms, 50),
        "late_p99_ms": percentile(late_ms, 99),
        "B/transaction": grown / OPEN,
        "begins/s": OPEN / begin_s,
    }
    return Sample(
        pings, seconds, cpu_seconds, verified=len(late_ms) == OPEN and min(late_ms) >= 0,
        notes=notes,
    )  # fmt: skip


class _Load:
    """Transactions of one stream, and when they may be aborted."""

    def __init__(self, client: NatsClient, stream: str, clock: Stopwatch) -> None:
        self._client = client
        self._clock = clock
        self._scope, _, self._stream = stream.partition("/")
        self._open: list[str] = []

    async def begin(self, count: int) -> None:
        numbers = iter(range(count))
        more_ms = LEASE_MS_MAX - LEASE_MS_MIN

        async def begin() -> None:
            for number in numbers:
                lease_ms = LEASE_MS_MIN + more_ms * number // count
                query = t.BeginTransaction(
                    scope=self._scope, stream=self._stream, lease_ms=lease_ms
                )
                begun = await self._ask("begin_transaction", query, t.TransactionBegun)
                self._open.append(begun.transaction.transaction_id)

        await _by(BEGINNERS, begin)

    async def ping(self, seconds: float) -> int:
        """→ how many were pinged, again and again."""
        pages = cycle(
            self._open[at : at + PINGS_PER_REQUEST]
            for at in range(0, len(self._open), PINGS_PER_REQUEST)
        )
        ends_at = self._clock.now() + seconds
        pinged = 0

        async def ping() -> None:
            nonlocal pinged
            while True:
                page = next(pages)
                found = await self._ask(
                    "ping_transactions", self._pings(page), t.TransactionsPinged
                )
                assert all(each.state is TransactionState.OPEN for each in found.results)
                pinged += len(page)
                if self._clock.now() >= ends_at:
                    return

        await _by(PINGERS, ping)
        return pinged

    def _pings(self, page: Sequence[str]) -> t.PingTransactions:
        pings = tuple(t.PingTransaction(transaction_id=one) for one in page)
        return t.PingTransactions(scope=self._scope, stream=self._stream, pings=pings)

    async def expire(self) -> list[float]:
        """Wait until all are aborted → how long after its deadline each was."""
        deadlines = {one: (await self._describe(one)).deadline_ms for one in self._open}
        until = self._clock.now() + EXPIRED_S_MAX
        last = max(deadlines, key=deadlines.__getitem__)
        while not (await self._describe(last)).state.has_ended:
            assert self._clock.now() < until, "not aborted in time"
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(LOOK_S)
        late_ms = []
        for one, deadline_ms in deadlines.items():
            found = await self._describe(one)
            assert found.state is TransactionState.ABORTED
            late_ms.append(float(found.ended_ms - deadline_ms))
        return late_ms

    async def abort_all(self) -> None:
        for one in self._open:
            query = t.AbortTransaction(
                scope=self._scope, stream=self._stream, transaction_id=one, wait_ms=10_000
            )
            await self._ask("abort_transaction", query, t.TransactionDescription)
        self._open.clear()

    async def _describe(self, transaction: str) -> t.TransactionInfo:
        query = t.DescribeTransaction(
            scope=self._scope, stream=self._stream, transaction_id=transaction
        )
        return (
            await self._ask("describe_transaction", query, t.TransactionDescription)
        ).transaction

    async def _ask(self, name: str, query: Contract, answer: type[A]) -> A:
        """Asks again while the controller says that it has not caught up."""
        body = query.model_dump_json().encode()
        until = self._clock.now() + TIMEOUT_S
        while True:
            found = await self._client.request(subjects.query(name), body, timeout=TIMEOUT_S)
            if found.data.startswith(b'{"ok":true') or self._clock.now() > until:
                return answer.model_validate_json(found.data)


async def _by(count: int, work: Callable[[], Coroutine[None, None, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(work())
