"""Many conditional writes to a key-value bucket in atomic batches of messages.

A server that syncs every message syncs a batch once, so a thousand objects take as long as a few. A
batch is stored as a whole or not at all, but these writes succeed or fail alone. If the server
refuses a batch, the adapter reads the keys, drops the writes whose conditions do not hold, names
the revision of a delete marker for a creation, and sends the rest again. Refusals are rare: they
need another writer of the same objects. After `ROUNDS_MAX` refusals the caller writes one by one.

**A lost answer.** All messages of a batch carry its id, and the adapter never sends a batch twice.
It reads each key's first message behind the expected revision. If one of them is the batch's, all
are stored, at consecutive sequences. If one is another writer's and none is the batch's, the batch
was refused or will be. Otherwise the batch may still be on its way: after some time the outcome
stays unknown. `jetstream_batch` has the proof.

On a cluster the server checks conditions before it stores, so a stored message may be void. The
caller reads every write back there, as it does for a single write.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import RawStreamMsg

from anabranch.common.adapters.counted_objects import OPERATION_HEADER
from anabranch.common.adapters.jetstream_batch import (
    BATCH_COMMIT_HEADER,
    BATCH_ID_HEADER,
    BATCH_SEQUENCE_HEADER,
)
from anabranch.common.adapters.jetstream_conditions import (
    EXPECTED_SEQUENCE_HEADER,
    RESOLVE_PAUSE_S,
    FirstFrom,
)
from anabranch.common.adapters.nats_connection import keeping_cancellation
from anabranch.common.errors import OutcomeUnknown, Unavailable
from anabranch.common.eventsourcing.ports import ObjectWrite
from anabranch.common.runtime.clock import Clock

BATCH_COUNT_MAX = 500
"""Writes in one batch; the server permits 1,000 messages."""
BATCH_SIZE_BYTES_MAX = 4 * 1024 * 1024
BATCH_COUNT_MIN = 4
"""Fewer writes are sent one by one: they fail alone without another round."""
ROUNDS_MAX = 3
DEADLINE_S = 10.0

DELETION = {OPERATION_HEADER: "DEL"}


class ObjectBatches:
    """Sends batches of writes to the bucket whose keys have this prefix as subjects.

    `first_from` reads a key's first message at or after a sequence.
    """

    def __init__(self, client: Client, clock: Clock, prefix: str, first_from: FirstFrom) -> None:
        self._client = client
        self._js = client.jetstream()
        self._clock = clock
        self._prefix = prefix
        self._first_from = first_from

    async def write(self, writes: Sequence[ObjectWrite]) -> Sequence[int] | None:
        """Store all writes at their expected revisions → their revisions; None if the server
        refused the batch, so that nothing was stored.

        Raises Unavailable (nothing was stored), OutcomeUnknown.
        """
        batch_id = self._client.new_inbox().rpartition(".")[2]
        try:
            with keeping_cancellation():
                last = await self._send(batch_id, writes)
            return _sequences(last, writes)
        except (
            nats.js.errors.NoStreamResponseError,
            nats.errors.OutboundBufferLimitError,
            nats.errors.MaxPayloadError,
        ) as error:
            # The server did not take the last message, so it drops the batch.
            raise Unavailable("the object store rejected the values", cause=repr(error)) from error
        except nats.js.errors.APIError:
            return None
        except (nats.errors.Error, OSError, TimeoutError):
            return await self._resolve(batch_id, writes)

    async def _send(self, batch_id: str, writes: Sequence[ObjectWrite]) -> int:
        *before, last = enumerate(writes, start=1)
        for number, one in before:
            await self._client.publish(
                self._prefix + one.key, one.value, headers=_headers(batch_id, number, one)
            )
        number, one = last
        headers = _headers(batch_id, number, one) | {BATCH_COMMIT_HEADER: "1"}
        subject = self._prefix + one.key
        ack = await self._js.publish(subject, one.value, timeout=DEADLINE_S, headers=headers)
        return ack.seq

    async def _resolve(self, batch_id: str, writes: Sequence[ObjectWrite]) -> Sequence[int] | None:
        """Find the outcome of a batch without an answer. Raises OutcomeUnknown."""
        deadline = self._clock.monotonic() + DEADLINE_S
        while True:
            with suppress(Unavailable):  # The next round reads again, until the time is up.
                has_other = False
                for index, one in enumerate(writes):
                    found = await self._first_from(one.key, one.revision + 1)
                    if found is not None and _is_of(found, batch_id):
                        return _sequences((found.seq or 0) - index + len(writes) - 1, writes)
                    has_other = has_other or found is not None
                if has_other:
                    return None
            if self._clock.monotonic() >= deadline:
                raise OutcomeUnknown("no reply to the writes in time", key=writes[0].key)
            await self._clock.sleep(RESOLVE_PAUSE_S)


class Stored(NamedTuple):
    """A write as it was sent, and its revision."""

    write: ObjectWrite
    revision: int


async def write_in_batches(
    batches: ObjectBatches,
    writes: Sequence[ObjectWrite],
    expect: Callable[[Sequence[ObjectWrite]], Awaitable[Sequence[ObjectWrite | None]]],
) -> tuple[Sequence[Stored], Sequence[ObjectWrite]]:
    """The stored writes, and those that remain to be sent one by one.

    Writes that are in neither have failed. `expect`: each write at the revision at which it can
    succeed now, or None if it cannot. Raises Unavailable, OutcomeUnknown.
    """
    left = writes
    for _ in range(ROUNDS_MAX):
        if len(left) < BATCH_COUNT_MIN:
            break
        stored = await batches.write(left)
        if stored is not None:
            return [Stored(*one) for one in zip(left, stored, strict=True)], ()
        possible = [one for one in await expect(left) if one is not None]
        if possible == left:
            break  # Another reason: the bucket takes no batches, or too many are open.
        left = possible
    return (), left


def parts(writes: Sequence[ObjectWrite]) -> Sequence[Sequence[ObjectWrite]]:
    """The writes in runs that fit into a batch, in order."""
    found: list[list[ObjectWrite]] = []
    size_bytes = 0
    for one in writes:
        size_bytes += len(one.value)
        is_full = not found or len(found[-1]) == BATCH_COUNT_MAX
        if is_full or size_bytes > BATCH_SIZE_BYTES_MAX:
            found.append([])
            size_bytes = len(one.value)
        found[-1].append(one)
    return found


def _headers(batch_id: str, number: int, one: ObjectWrite) -> dict[str, str]:
    return {
        EXPECTED_SEQUENCE_HEADER: str(one.revision),
        BATCH_ID_HEADER: batch_id,
        BATCH_SEQUENCE_HEADER: str(number),
        **({} if one.value else DELETION),
    }


def _is_of(found: RawStreamMsg, batch_id: str) -> bool:
    return (found.headers or {}).get(BATCH_ID_HEADER) == batch_id


def _sequences(last: int, writes: Sequence[ObjectWrite]) -> Sequence[int]:
    return range(last - len(writes) + 1, last + 1)
