"""Several messages on different subjects of one stream, stored together or not at all.

The server collects the messages of a batch as they come and, with the last, checks every
condition and stores all of them one behind the other, or none. It does so in one step for whoever
reads or writes, and finishes at its start what a crash has interrupted. A batch whose messages did
not all arrive is refused as a whole, and dropped after some seconds.

**An answer that was lost.** The messages are never sent again, so what is stored of them now is
one batch or nothing. Each subject is looked at where my message would be, first behind the
expected sequence:

- One of mine is there: the batch is stored, so all of it is, in consecutive places.
- Somebody else's is there, and mine is on no subject: my condition on that subject can never hold
  again, and it did not hold before, else mine would be in that place. So the batch is refused,
  however late it arrives, and with it the messages whose own conditions still hold.
- Nothing follows on any subject: it may still be on its way. It is looked for again, and when the
  time is up the answer is OutcomeUnknown.

The subjects are looked at one after the other and not in one instant. That is enough: the first
two findings are true for ever once they are true. All subjects are looked at before a refusal is
believed, because on one of them others may have moved on so far that mine was purged.

The server keeps few batches open per stream (50) and refuses more, so an adapter opens fewer.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import PubAck, RawStreamMsg

from anabranch.common.adapters.jetstream_conditions import (
    RESOLVE_PAUSE_S,
    WRONG_LAST_SEQUENCE_CODES,
    condition_headers,
    has_id,
)
from anabranch.common.adapters.nats_connection import keeping_cancellation
from anabranch.common.errors import OutcomeUnknown, Unavailable, WrongExpectedSequence
from anabranch.common.eventsourcing.message import check_batch, encode_headers
from anabranch.common.eventsourcing.ports import Append
from anabranch.common.runtime.clock import Clock

OPEN_BATCHES_MAX = 32
BATCH_ID_HEADER = "Nats-Batch-Id"
BATCH_SEQUENCE_HEADER = "Nats-Batch-Sequence"
BATCH_COMMIT_HEADER = "Nats-Batch-Commit"

FirstFrom = Callable[[str, int], Awaitable[RawStreamMsg | None]]
"""The subject's first message at or after a sequence. Raises Unavailable."""


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
        """Store all or none; their sequences. See `EventStore.append_all` and the module.

        Raises WrongExpectedSequence, OutcomeUnknown, Unavailable (surely nothing was stored).
        """
        check_batch(appends)
        try:
            async with self._opened(appends[0].subject):
                with keeping_cancellation():
                    ack = await self._send(appends)
            return _sequences(ack.seq - len(appends) + 1, appends)
        except (
            nats.js.errors.NoStreamResponseError,
            nats.errors.OutboundBufferLimitError,
            nats.errors.MaxPayloadError,
        ) as error:
            # Without its last message, which is the one that was not taken, a batch is dropped.
            raise _not_taken(appends, error) from error
        except nats.js.errors.APIError as error:
            if error.err_code not in WRONG_LAST_SEQUENCE_CODES:
                raise _not_taken(appends, error) from error
            return await self._resolve(appends, refused=True)
        except (nats.errors.Error, OSError, TimeoutError):
            return await self._resolve(appends, refused=False)

    @asynccontextmanager
    async def _opened(self, subject: str) -> AsyncIterator[None]:
        """A batch that may be open, waited for no longer than for an answer."""
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
        """What became of a batch; the module says why this is sure.

        Raises WrongExpectedSequence, OutcomeUnknown.
        """
        deadline = self._clock.monotonic() + self._resolve_budget_s
        while True:
            with suppress(Unavailable):  # then it is looked at again, until the time is up
                following = [
                    await self._first_from(one.subject, one.expected_sequence + 1)
                    for one in appends
                ]
                if (first := _first_of_mine(appends, following)) is not None:
                    return _sequences(first, appends)
                moved = [at for at in zip(appends, following, strict=True) if at[1] is not None]
                if moved or refused:
                    raise _moved_on(*(moved[0] if moved else (appends[0], None)))
            if self._clock.monotonic() >= deadline:
                raise OutcomeUnknown(
                    "no reply to a batch of messages in time", subject=appends[0].subject
                )
            await self._clock.sleep(RESOLVE_PAUSE_S)


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
    """The sequence of the batch's first message; None if no message is the batch's."""
    for index, (one, found) in enumerate(zip(appends, following, strict=True)):
        if found is not None and has_id(found, one.message.append_id):
            assert found.seq is not None
            return found.seq - index
    return None


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
