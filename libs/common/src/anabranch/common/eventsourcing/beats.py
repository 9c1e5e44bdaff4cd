"""Keeps changing a process's own record, for as long as the process lives.

Observers conclude from these changes which processes live. A beat is therefore given up early and
retried: one lost beat must not use up the time after which a process counts as dead. The record
names the session of the process. Of two processes under one key the later one stays: it overwrites
the record, and the earlier one ends when it finds another session in place of its own. No key has a
time to live.

An observer may mark the record as *over*, by compare-and-set on the revision that it judged. The
next beat finds this out, because it is a compare-and-set as well. The process may then continue
under another session.

A beat counts as *confirmed* only if its compare-and-set succeeded. If its outcome is unknown, it
may still change the record, but it confirms nothing. The moment at which a confirmed beat was sent
is thus never later than the change that observers saw.

The store dates every beat by its own clock, so a process that reads its beats back learns the
offset of its wall clock from the store's.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from anabranch.common.errors import (
    Corrupt,
    ObjectExists,
    OutcomeUnknown,
    ProcessReplaced,
    RevisionConflict,
    SessionOver,
    Unavailable,
)
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.logger import get_logger

BEAT_S = 0.75
BEAT_DEADLINE_S = 0.6
RETRY_S = 0.15
COMPARE_DEADLINE_S = 0.25
"""For reading a beat back; the next beat waits for it."""
LAST_WORD_S_MAX = 1.0
_TRY_AGAIN = (Unavailable, OutcomeUnknown, ObjectExists, RevisionConflict)

_log = get_logger(__name__)


def _never(_value: bytes) -> bool:
    return False


def _nothing(_sent_s: float) -> None:
    return


class Beats:
    """The record under `key`. `encode(beat)` is its value.

    `session_in` reads the session from a value, and `over_in` whether an observer has ended it.
    `confirmed` gets the time by `Clock.monotonic` at which a confirmed beat was sent.
    """

    def __init__(
        self,
        objects: ObjectStore,
        key: str,
        session: str,
        *,
        encode: Callable[[int], bytes],
        session_in: Callable[[bytes], str],
        clock: Clock,
        store_clock: StoreClock | None = None,
        over_in: Callable[[bytes], bool] = _never,
        confirmed: Callable[[float], None] = _nothing,
    ) -> None:
        """`store_clock` learns from every beat."""
        self._objects = objects
        self._key = key
        self._session = session
        self._encode = encode
        self._session_in = session_in
        self._clock = clock
        self._store_clock = store_clock
        self._over_in = over_in
        self._confirmed = confirmed
        self._over = ""
        """The own session that is over; the record may still name it."""
        self._beat = 0
        self._revision: int | None = None
        self._announced = False

    async def run(self) -> None:
        """Beat until cancelled. Raises ProcessReplaced; SessionOver, after which `begin` and
        another call continue."""
        quiet = True
        while True:
            pause_s = BEAT_S
            try:
                sent_ms = self._clock.now_ms()
                async with asyncio.timeout(BEAT_DEADLINE_S):
                    sent_s = await self._rewrite()
                self._confirmed(sent_s)
                quiet = True
                await self._compare_clocks(sent_ms)
            except (TimeoutError, *_TRY_AGAIN) as why:
                self._revision = None
                pause_s = RETRY_S
                if quiet:
                    _log.warning("cannot announce this process to the cluster", error=repr(why))
                quiet = False
            await self._clock.sleep(pause_s)

    def begin(self, session: str) -> None:
        """Continue under a new session; `encode` must name it from now on."""
        self._over, self._session = self._session, session

    async def end(self, last_word: bytes | None) -> None:
        """Write `last_word`, or delete the record, after `run` has ended. This is tried only
        once: without it, observers conclude the end from the silence."""
        if not self._announced:
            return
        try:
            async with asyncio.timeout(LAST_WORD_S_MAX):
                revision = await self._find()
                if revision is None:
                    return
                if last_word is None:
                    await self._objects.delete(self._key, revision)
                else:
                    await self._objects.update(self._key, last_word, revision)
        except (TimeoutError, ProcessReplaced, SessionOver, *_TRY_AGAIN) as why:
            _log.warning("cannot announce the end of this process", error=repr(why))

    async def _rewrite(self) -> float:
        """Change the record. Returns the time at which the change was sent."""
        if self._revision is None:
            self._revision = await self._find()
        value = self._encode(self._beat + 1)
        sent_s = self._clock.monotonic()
        if self._revision is None:
            self._revision = await self._objects.create(self._key, value)
        else:
            self._revision = await self._objects.update(self._key, value, self._revision)
        self._beat += 1
        self._announced = True
        return sent_s

    async def _compare_clocks(self, sent_ms: int) -> None:
        """Read the beat back that was sent at `sent_ms`; a failed read is ignored."""
        if self._store_clock is None:
            return
        with suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(COMPARE_DEADLINE_S):
                found = await self._objects.get(self._key)
            if found is not None and found.revision == self._revision:
                self._store_clock.learn(sent_ms, found.stored_ms, self._clock.now_ms())

    async def _find(self) -> int | None:
        """The record's revision; None if there is none. Raises ProcessReplaced, SessionOver."""
        found = await self._objects.get(self._key)
        if found is None:
            return None
        session = self._read(found.value)
        if session == self._session:
            self._announced = True
            if self._over_in(found.value):
                raise SessionOver("this process was declared dead", id=self._key, session=session)
        elif self._announced and session != self._over:
            raise ProcessReplaced(
                "another process has started with this process's id", id=self._key, session=session
            )
        return found.revision

    def _read(self, value: bytes) -> str:
        try:
            return self._session_in(value)
        except Corrupt:
            return ""
