"""Keeps changing a process's own record, for as long as the process lives.

Observers conclude from these changes which processes live. A beat is therefore given up early and
retried: one lost beat must not use up the time after which a process counts as dead. The record
names the session of the process. Of two processes under one key the later one stays: it overwrites
the record, and the earlier one ends when it finds another session in place of its own. No key has a
time to live.

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


class Beats:
    """The record under `key`. `encode(beat)` is its value, `session_in` reads it from a value."""

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
    ) -> None:
        """`store_clock` learns from every beat."""
        self._objects = objects
        self._key = key
        self._session = session
        self._encode = encode
        self._session_in = session_in
        self._clock = clock
        self._store_clock = store_clock
        self._beat = 0
        self._revision: int | None = None
        self._announced = False

    async def run(self) -> None:
        """Beat until cancelled. Raises ProcessReplaced."""
        quiet = True
        while True:
            pause_s = BEAT_S
            try:
                sent_ms = self._clock.now_ms()
                async with asyncio.timeout(BEAT_DEADLINE_S):
                    await self._rewrite()
                quiet = True
                await self._compare_clocks(sent_ms)
            except (TimeoutError, *_TRY_AGAIN) as why:
                self._revision = None
                pause_s = RETRY_S
                if quiet:
                    _log.warning("cannot announce this process to the cluster", error=repr(why))
                quiet = False
            await self._clock.sleep(pause_s)

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
        except (TimeoutError, ProcessReplaced, *_TRY_AGAIN) as why:
            _log.warning("cannot announce the end of this process", error=repr(why))

    async def _rewrite(self) -> None:
        if self._revision is None:
            self._revision = await self._find()
        value = self._encode(self._beat + 1)
        if self._revision is None:
            self._revision = await self._objects.create(self._key, value)
        else:
            self._revision = await self._objects.update(self._key, value, self._revision)
        self._beat += 1
        self._announced = True

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
        """The record's revision; None if there is none. Raises ProcessReplaced."""
        found = await self._objects.get(self._key)
        if found is None:
            return None
        session = self._read(found.value)
        if session == self._session:
            self._announced = True
        elif self._announced:
            raise ProcessReplaced(
                "another process has started with this process's id", id=self._key, session=session
            )
        return found.revision

    def _read(self, value: bytes) -> str:
        try:
            return self._session_in(value)
        except Corrupt:
            return ""
