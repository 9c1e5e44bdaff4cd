"""Several messages on different subjects of one stream, stored together or not at all.

The server collects the messages of a batch as they arrive. With the last one it checks every
condition and stores all messages at consecutive sequences, or none. For readers and writers this is
one step, and after a crash the server completes it at its start. If messages of a batch are
missing, the server refuses the whole batch, and drops it after some seconds.

**A lost answer.** The adapter never sends the messages again, so the stream holds the whole batch
or none of it. The adapter reads each subject's first message behind the expected sequence:

- The message is the batch's: the batch is stored, and all of it at consecutive sequences.
- The message is another writer's, and no subject has a message of the batch. The batch's condition
  on that subject can never hold again, and it did not hold before, otherwise the batch's message
  would have this place. So the server refuses the batch, however late it arrives, together with its
  messages whose own conditions still hold.
- No subject has such a message: the batch may still be on its way. The adapter reads again, and
  when the time is up it raises OutcomeUnknown.

The adapter reads the subjects one after the other, not at one instant. That is enough, because the
first two findings stay true once they are true. It reads all subjects before it concludes a
refusal, because on one of them other writers may have moved on so far that the batch's message was
purged.

On a cluster the adapter reads also after an acknowledgement, as `jetstream_events` does. If only a
part of a stored batch counts, it raises CorruptEvent: the server promises that this cannot happen.

The server keeps few batches open per stream (50) and refuses more, so an adapter opens fewer.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import PubAck, RawStreamMsg

from anabranch.common.adapters.jetstream_conditions import (
    WRONG_LAST_SEQUENCE_CODES,
    FirstFrom,
    Waits,
    condition_headers,
    first_of_revision,
    has_id,
)
from anabranch.common.adapters.nats_connection import is_clustered, keeping_cancellation
from anabranch.common.errors import (
    CorruptEvent,
    Unavailable,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.message import (
    HEADER_REVISION,
    check_batch,
    encode_headers,
)
from anabranch.common.eventsourcing.ports import Append
from anabranch.common.runtime.clock import Clock

OPEN_BATCHES_MAX = 32
BATCH_ID_HEADER = "Nats-Batch-Id"
BATCH_SEQUENCE_HEADER = "Nats-Batch-Sequence"
BATCH_COMMIT_HEADER = "Nats-Batch-Commit"


class AtomicBatches:
    """Appends batches to streams that allow it; one event loop owns it."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        first_from: FirstFrom,
        *,
        append_deadline_s: float,
        resolve_budget_s: float,
    ) -> None:
        self._client = client
        self._js = client.jetstream(timeout=append_deadline_s)
        self._clock = clock
        self._first_from = first_from
        self._append_deadline_s = append_deadline_s
        self._resolve_budget_s = resolve_budget_s
        self._open = asyncio.Semaphore(OPEN_BATCHES_MAX)

    async def append(self, appends: Sequence[Append]) -> Sequence[int]:
        """Store all messages or none; return their sequences. See `EventStore.append_all`.

        Raises WrongExpectedSequence, OutcomeUnknown, Unavailable (certainly nothing was stored).
        """
        check_batch(appends)
        try:
            async with self._opened(appends[0].subject):
                with keeping_cancellation():
                    ack = await self._send(appends)
            if not is_clustered(self._client):
                return _sequences(ack.seq - len(appends) + 1, appends)
            return await self._resolve(appends, refused=False)
        except (
            nats.js.errors.NoStreamResponseError,
            nats.errors.OutboundBufferLimitError,
            nats.errors.MaxPayloadError,
        ) as error:
            # The server did not take the last message, so it drops the batch.
            raise _not_taken(appends, error) from error
        except nats.js.errors.APIError as error:
            if error.err_code not in WRONG_LAST_SEQUENCE_CODES:
                raise _not_taken(appends, error) from error
            return await self._resolve(appends, refused=True)
        except (nats.errors.Error, OSError, TimeoutError):
            return await self._resolve(appends, refused=False)

    @asynccontextmanager
    async def _opened(self, subject: str) -> AsyncIterator[None]:
        """Wait for a free place among the open batches, as long as for an answer."""
        try:
            async with asyncio.timeout(self._append_deadline_s):
                await self._open.acquire()
        except TimeoutError as error:
            raise Unavailable(
                "too many batches of messages are in flight",
                subject=subject,
                open_max=OPEN_BATCHES_MAX,
                remedy="try again later",
            ) from error
        try:
            yield
        finally:
            self._open.release()

    async def _send(self, appends: Sequence[Append]) -> PubAck:
        *before, last = appends
        batch_id = appends[0].message.append_id
        for number, one in enumerate(before, start=1):
            await self._client.publish(
                one.subject, one.message.body, headers=_headers(one, batch_id, number)
            )
        headers = _headers(last, batch_id, len(appends)) | {BATCH_COMMIT_HEADER: "1"}
        return await self._js.publish(
            last.subject, last.message.body, timeout=self._append_deadline_s, headers=headers
        )

    async def _resolve(self, appends: Sequence[Append], *, refused: bool) -> Sequence[int]:
        """Find the outcome of a batch; the module gives the proof.

        Raises WrongExpectedSequence, OutcomeUnknown.
        """
        clustered = is_clustered(self._client)
        waits = Waits(self._clock, self._resolve_budget_s, refused=refused, clustered=clustered)
        while True:
            with suppress(Unavailable):  # The next round reads again, until the time is up.
                following = [
                    await first_of_revision(
                        self._first_from,
                        one.subject,
                        one.expected_sequence,
                        one.message.revision,
                    )
                    for one in appends
                ]
                if (first := _first_of_mine(appends, following)) is not None:
                    _require_whole(appends, following)
                    return _sequences(first, appends)
                moved = [at for at in zip(appends, following, strict=True) if at[1] is not None]
                if moved or waits.is_refused():
                    raise _moved_on(*(moved[0] if moved else (appends[0], None)))
            await waits.pause(appends[0].subject)


def _headers(one: Append, batch_id: str, number: int) -> dict[str, str]:
    return {
        **encode_headers(one.subject, one.message),
        **condition_headers(one.subject, one.expected_sequence),
        BATCH_ID_HEADER: batch_id,
        BATCH_SEQUENCE_HEADER: str(number),
    }


def _first_of_mine(
    appends: Sequence[Append], following: Sequence[RawStreamMsg | None]
) -> int | None:
    """The sequence of the batch's first message; None if no found message is the batch's."""
    for index, (one, found) in enumerate(zip(appends, following, strict=True)):
        if found is not None and has_id(found, one.message.append_id):
            assert found.seq is not None
            return found.seq - index
    return None


def _require_whole(appends: Sequence[Append], following: Sequence[RawStreamMsg | None]) -> None:
    """Raise CorruptEvent if a message of a stored batch is void. No reader could tell."""
    for one, found in zip(appends, following, strict=True):
        if found is None or has_id(found, one.message.append_id):
            continue
        if (found.headers or {}).get(HEADER_REVISION) == str(one.message.revision):
            raise CorruptEvent(
                "the event store stored a batch although one of its subjects had moved on",
                remedy="run `anabranch controller verify`, and report this with the release of "
                "the NATS servers",
                subject=one.subject,
                sequence=found.seq,
            )


def _sequences(first: int, appends: Sequence[Append]) -> Sequence[int]:
    return range(first, first + len(appends))


def _moved_on(one: Append, found: RawStreamMsg | None) -> WrongExpectedSequence:
    return WrongExpectedSequence(
        "the subject has moved on",
        subject=one.subject,
        expected=one.expected_sequence,
        actual=found.seq if found is not None else None,
    )


def _not_taken(appends: Sequence[Append], error: Exception) -> Unavailable:
    return Unavailable(
        "the event store rejected the batch of messages",
        subject=appends[0].subject,
        message_count=len(appends),
        cause=str(error) or repr(error),
    )
