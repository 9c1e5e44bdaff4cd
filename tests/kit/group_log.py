"""The log of a reader group in virtual time, and the way there.

One list of appends, and the state behind each of them, by the real codec and the real `apply`. A
process reaches it through a `SimGroupHandle`, which keeps the promises of a `StateSynchronizer`:
appends go one after the other in the order of their calls; one that has begun goes on when its
caller is cancelled, or its process is dead; one whose outcome is unknown may still come.
"""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from anabranch.client.groups import invariants
from anabranch.client.groups.codec import ReaderGroupCodec
from anabranch.client.groups.state import ReaderGroupState
from anabranch.client.groups.updates import AnyUpdate
from anabranch.common.errors import AnabranchError, OutcomeUnknown, Unavailable
from kit.group_process import SimProcess
from kit.rng import Random
from kit.simlink import ANSWERS_LOST, CLEAR, REQUESTS_LATE, REQUESTS_LOST, SLOW

SHORT_S = (0.0005, 0.02)
SLOW_S = (0.1, 2.0)
LATE_S = (1.0, 12.0)
PATIENCE_S = (0.5, 6.0)
"""After so long without an answer a request has failed."""
COMPACTIONS = "compactions of a group's log"
RACES = "conditional appends that others were faster than"
CODEC = ReaderGroupCodec()

Applied = Callable[[ReaderGroupState, AnyUpdate, ReaderGroupState], None]
Decide = Callable[[ReaderGroupState], Sequence[AnyUpdate]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    value: int | None = None
    error: AnabranchError | None = None

    def result(self) -> int:
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value


class SimGroupLog:
    """The log as it is. `on_applied`: told of every entry; `away_until_s`: an outage ends then."""

    def __init__(
        self, state: ReaderGroupState, rng: Random, counts: Counter[str], on_applied: Applied
    ) -> None:
        self.states = [state]
        self.rng = rng
        self.counts = counts
        self.weather = CLEAR
        self.away_until_s = 0.0
        self._on_applied = on_applied
        self._sizes = [0]
        self._inits = [0]
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def state(self) -> ReaderGroupState:
        return self.states[-1]

    @property
    def revision(self) -> int:
        return len(self.states) - 1

    def append(self, updates: Sequence[AnyUpdate]) -> int:
        """→ the revision behind them."""
        state, size = self.state, self._sizes[-1]
        for update in updates:
            data = CODEC.encode_update(update)
            size += len(data)
            before, decoded = state, CODEC.decode_update(data)
            state = CODEC.apply(before, decoded, revision=len(self.states))
            invariants.check(before, state)
            self._on_applied(before, decoded, state)
        self._grow(state, size)
        return self.revision

    def begin_again(self, state: ReaderGroupState) -> None:
        """Append a whole state."""
        stored = CODEC.decode_state(CODEC.encode_state(state))
        assert stored == state, "a state is not what was stored of it"
        invariants.check(stored, stored)
        self._inits.append(len(self.states))
        self._grow(stored, self._sizes[-1])

    def _grow(self, state: ReaderGroupState, size: int) -> None:
        self.states.append(state)
        self._sizes.append(size)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def bytes_since_init(self, revision: int) -> int:
        init = self._inits[bisect_right(self._inits, revision) - 1]
        return self._sizes[revision] - self._sizes[init]

    def when_behind(self, revision: int, wait_s: float, then: Callable[[], None]) -> None:
        """Call it when the log is longer, or after that time."""
        loop = asyncio.get_running_loop()
        if self.revision > revision or wait_s <= 0:
            then()
            return
        grown: asyncio.Future[None] = loop.create_future()
        self._waiting.append(grown)
        timer = loop.call_later(wait_s, grown.cancel)

        def woken(_: object) -> None:
            timer.cancel()
            then()

        grown.add_done_callback(woken)


class SimGroupHandle:
    """One process's way to the log: a `GroupLog`."""

    def __init__(self, log: SimGroupLog, process: SimProcess) -> None:
        self._log = log
        self._process = process
        self._state: ReaderGroupState | None = None
        self._revision = 0
        self._turn: asyncio.Future[None] | None = None

    @property
    def state(self) -> ReaderGroupState | None:
        return self._state

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def bytes_since_init(self) -> int:
        return self._log.bytes_since_init(self._revision)

    async def close(self) -> None:
        """What is under way goes on."""

    async def fetch(self, *, wait_s: float = 0.0) -> int:
        known = self._revision if self._state is not None else -1

        def arrive(reply: Callable[[int], None]) -> None:
            self._log.when_behind(known, wait_s, lambda: reply(self._log.revision))

        before = self._revision
        self._fold((await self._ask(arrive, changes=False)).result())
        return self._revision - before

    async def append(self, updates: Sequence[AnyUpdate]) -> int:
        wanted = list(updates)

        def arrive(reply: Callable[[int], None]) -> None:
            reply(self._log.append(wanted))

        return (await self._in_turn(arrive)).result()

    async def update(self, decide: Decide) -> Sequence[AnyUpdate]:
        while True:
            updates = tuple(decide(self._known()))
            if not updates:
                return updates
            if await self._append_if(partial(self._log.append, updates)):
                return updates
            await self.fetch()

    async def compact(self) -> bool:
        state = self._known()
        self._log.counts[COMPACTIONS] += 1
        return await self._append_if(partial(self._log.begin_again, state))

    async def replace(self, decide: Callable[[ReaderGroupState], ReaderGroupState | None]) -> bool:
        while True:
            new = decide(self._known())
            if new is None:
                return False
            if await self._append_if(partial(self._log.begin_again, new)):
                return True
            await self.fetch()

    def _known(self) -> ReaderGroupState:
        assert self._state is not None
        return self._state

    async def _append_if(self, perform: Callable[[], object]) -> bool:
        """If nothing came behind what is folded → whether."""
        revision = self._revision

        def arrive(reply: Callable[[int], None]) -> None:
            if self._log.revision != revision:
                self._log.counts[RACES] += 1
                reply(-1)
                return
            perform()
            reply(self._log.revision)

        behind = (await self._in_turn(arrive)).result()
        if behind >= 0:
            self._fold(behind)
        return behind >= 0

    def _fold(self, revision: int) -> None:
        if self._state is None:  # who comes new decodes what is stored
            stored = CODEC.encode_state(self._log.states[revision])
            self._state, self._revision = CODEC.decode_state(stored), revision
        elif revision > self._revision:
            self._state, self._revision = self._log.states[revision], revision

    # --- the way there --------------------------------------------------------------------

    async def _in_turn(self, arrive: Callable[[Callable[[int], None]], None]) -> Answer:
        """When all before is answered; a caller that is cancelled earlier takes it back."""
        before = self._turn
        mine = self._turn = asyncio.get_running_loop().create_future()
        try:
            if before is not None:
                await asyncio.shield(before)
            answer = self._ask(arrive, changes=True)
        except BaseException:
            if before is None or before.done():
                mine.set_result(None)
            else:
                before.add_done_callback(lambda _: mine.set_result(None))
            raise
        answer.add_done_callback(lambda _: mine.set_result(None))
        return await asyncio.shield(answer)

    def _ask(
        self, arrive: Callable[[Callable[[int], None]], None], *, changes: bool
    ) -> "asyncio.Future[Answer]":
        loop, log = asyncio.get_running_loop(), self._log
        answer: asyncio.Future[Answer] = loop.create_future()

        def settle(value: Answer) -> None:
            if not answer.done():
                answer.set_result(value)

        def reply(revision: int) -> None:
            is_lost = changes and log.rng.random() < log.weather.lost
            if is_lost or loop.time() < self._process.away_until_s:
                log.counts[ANSWERS_LOST] += 1
                self._fail_later(settle, is_known=False)
            else:
                loop.call_later(self._delay(), settle, Answer(revision))

        if self._process.is_buried:
            loop.call_later(0.001, settle, Answer(error=Unavailable("the run is over")))
        elif log.rng.random() < log.weather.lost:
            log.counts[REQUESTS_LOST] += 1
            is_late = changes and log.rng.random() < 0.5
            if is_late:
                log.counts[REQUESTS_LATE] += 1
                loop.call_later(log.rng.uniform(*LATE_S), arrive, lambda _: None)
            self._fail_later(settle, is_known=not is_late and log.rng.random() < 0.5)
        else:
            self._travel(arrive, reply, settle)
        return answer

    def _travel(
        self,
        arrive: Callable[[Callable[[int], None]], None],
        reply: Callable[[int], None],
        settle: Callable[[Answer], None],
    ) -> None:
        """Arrive soon, or when the outage is over, if that is soon enough."""
        loop, log = asyncio.get_running_loop(), self._log
        away_s = max(log.away_until_s, self._process.away_until_s) - loop.time()
        if away_s <= 0:
            loop.call_later(self._delay(), arrive, reply)
        elif away_s > log.rng.uniform(*PATIENCE_S):
            self._fail_later(settle, is_known=True)
        else:
            self._process.trouble.append((loop.time(), loop.time() + away_s + 1))
            loop.call_later(away_s + self._delay(), arrive, reply)

    def _delay(self) -> float:
        log = self._log
        if log.rng.random() >= log.weather.slow:
            return log.rng.uniform(*SHORT_S)
        log.counts[SLOW] += 1
        slow_s, now_s = log.rng.uniform(*SLOW_S), asyncio.get_running_loop().time()
        self._process.trouble.append((now_s, now_s + slow_s))
        return slow_s

    def _fail_later(self, settle: Callable[[Answer], None], *, is_known: bool) -> None:
        loop = asyncio.get_running_loop()
        after_s = self._log.rng.uniform(*PATIENCE_S)
        self._process.trouble.append((loop.time(), loop.time() + after_s + 1))
        error: AnabranchError = (
            Unavailable("the group's log does not answer")
            if is_known
            else OutcomeUnknown("the group's log did not answer in time")
        )
        loop.call_later(after_s, settle, Answer(error=error))
