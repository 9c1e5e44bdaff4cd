"""One copy of a replicated log: its history, and its records in the store's own log.

    append    the message counts in `history` at once, so that the next one can follow before the
              sync; `synced` is the last position that is durable
    promise   refuses lower container epochs from the call on, and returns when that is durable
    rewind    forgets messages, by a record that voids them after a restart, too
    release   lets the local log forget messages that tier 2 has; the last one stays
    unpin     records the last position anew, and releases the last message as well

Every change of the history happens in one step with the append of its record, so a caller that is
cancelled leaves nothing half done; the waits only wait. The records become durable in order. After
a crash the copy therefore has the history of some moment, no older than the last report.

The leader of the log uses the same copy as its own, and is notified by `lead` when it must end.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager

from anabranch.common.errors import (
    AnabranchError,
    CorruptJournal,
    Deposed,
    ObjectNotFound,
    Unavailable,
)
from anabranch.common.storage.ports import Buffer
from anabranch.segstore.adapters.replicated_log.records import Local, Records
from anabranch.segstore.domain.log.replica.history import (
    Counted,
    History,
    Position,
    Record,
    position_of,
    replayed,
)
from anabranch.segstore.domain.log.replica.names import parse_copy_name
from anabranch.segstore.domain.log.replica.records import (
    decode_record,
    encode_base,
    encode_promise,
)
from anabranch.segstore.domain.log.stream.messages import (
    Link,
    Message,
    Opening,
    decode_message,
    log_seed,
)

OnEnd = Callable[[AnabranchError], None]


class Copy:
    """Only `open_copy` creates it.

    `promised`: the highest container epoch that was promised. `synced`: the last position that is
    durable in this copy. `history` is ahead of it by the messages that are being written.
    """

    def __init__(
        self, records: Records, container: int, name: tuple[str, str], history: History
    ) -> None:
        self._records = records
        self.container = container
        self.log_id, self.copy_id = name
        self.seed = log_seed(self.log_id)
        self.history = history
        self.promised = 0
        self.synced: Position = position_of(history.end)
        self._released = history.base.last_sequence
        self._anchor = 0
        """The record that holds the present base; 0 if the oldest message names it."""
        self._promise_record = 0
        """The last synced record that shows the highest epoch of the synced ones."""
        self._release_waits = False
        self._leading: tuple[int, OnEnd] | None = None
        records.on_end = self._end_leader

    @property
    def failure(self) -> AnabranchError | None:
        """The error that ended the copy; None while it is in use."""
        return self._records.failure

    @property
    def leading_epoch(self) -> int:
        """The container epoch under which this store leads the log; 0 if it does not."""
        return self._leading[0] if self._leading is not None else 0

    def lead(self, container_epoch: int, on_end: OnEnd) -> None:
        """Have `on_end` called once: with Deposed if a higher epoch is promised, or with `failure`.

        If the local log failed for all copies (its `failure` is set), the store ends. A later call
        replaces an older one.
        """
        assert container_epoch == self.promised, "a leader promises its epoch first"
        self._leading = (container_epoch, on_end)

    def stop_leading(self, container_epoch: int) -> None:
        """Notify the leader of this epoch no more; harmless to repeat."""
        if self.leading_epoch == container_epoch:
            self._leading = None

    def _end_leader(self, error: AnabranchError) -> None:
        """Notify the leader, if there is one, that it must end."""
        leading, self._leading = self._leading, None
        if leading is not None:
            leading[1](error)

    # --- changes ------------------------------------------------------------------------------

    async def promise(self, container_epoch: int) -> None:
        """Refuse lower container epochs from now on; durable on return, with all records so far.

        Promising the same epoch again is harmless here. Raises Deposed, the failure, Unavailable.
        """
        if container_epoch < self.promised:
            raise self._deposed(container_epoch)
        if container_epoch > self.promised:
            data = encode_promise(self.container, container_epoch, self.seed)
            self._records.append((data,), self._own_synced)
            self.promised = container_epoch
            self._end_leader(self._deposed(self.leading_epoch))
        await self._records.wait()
        self.check(container_epoch)

    def append(
        self,
        data: Sequence[Buffer],
        message: Message,
        opening: Opening | None,
        on_synced: Callable[[Counted], None],
        *,
        container_epoch: int,
    ) -> Counted:
        """Append a message that `history.judge` found to be the next one, and do not wait.

        `data`: the whole message, which must not change until it is synced. `container_epoch`: the
        one that the caller promised; messages of older epochs may come under it. Raises Deposed,
        the failure.
        """
        self.check(container_epoch)
        number = self._records.append(data, lambda _: self._message_synced(counted, on_synced))
        counted = self.history.add(message, opening, number)
        return counted

    def _message_synced(self, counted: Counted, on_synced: Callable[[Counted], None]) -> None:
        self.synced = counted.position
        if counted.link.container_epoch == self.promised:
            self._promise_record = counted.record
        if self._release_waits:
            self._release_records()
        on_synced(counted)

    def _own_synced(self, number: int) -> None:
        """A record that is not a message is durable; it shows the highest epoch so far."""
        self._promise_record = number
        if self._release_waits:
            self._release_records()

    async def rewind(self, to: Link, *, container_epoch: int) -> None:
        """Forget the messages after one of the history; durable on return.

        Raises CorruptJournal (the history does not have it), Deposed, the failure, Unavailable.
        """
        self.check(container_epoch)
        await self._idle()
        self.check(container_epoch)
        if not self.history.has(to):
            raise CorruptJournal(
                "the copy does not have the message to which it shall return",
                container=self.container, container_epoch=to.container_epoch, number=to.number,
            )  # fmt: skip
        if self.history.end != to:
            self._append_base(to)
            self.history.rewind(to)
            self.synced = position_of(to)
        await self._records.wait()

    def _append_base(self, link: Link) -> None:
        data = encode_base(self.container, self.promised, link, self.seed)
        self._anchor = self._records.append((data,), self._own_synced)

    def release(self, sequence: int) -> None:
        """Forget the messages up to an operation that tier 2 has, except the last message."""
        self._released = max(self._released, sequence)
        self.history.release(sequence)
        self._release_records()

    def _release_records(self) -> None:
        needed = self._needed()
        self._release_waits = needed is None
        if needed is not None:
            self._records.release(needed)

    def _needed(self) -> int | None:
        """The oldest record that is needed; None while the one that replaces it is not synced."""
        oldest = self.history.oldest_record or self._anchor
        return min(oldest, self._promise_record) if oldest <= self._records.synced else None

    async def unpin(self) -> bool:
        """Release the last message too, after recording the position anew; durable on return.

        False if tier 2 lacks messages of the copy. Raises the failure, Unavailable.
        """
        history = self.history
        if history.end.last_sequence > self._released or len(history.after(history.base)) > 1:
            return False
        self._append_base(history.end)
        history.settle()
        await self._records.wait()
        needed = self._needed()
        if needed is not None:
            await self._records.release_now(needed)
        return True

    async def restart(self, base: Link, *, container_epoch: int) -> None:
        """Go on behind `base`, which names the last message with another last operation, because
        tier 2 has everything up to there. Durable on return. Raises the errors of `rewind`."""
        self.check(container_epoch)
        await self._idle()
        self.check(container_epoch)
        assert position_of(base) == position_of(self.history.end), "behind the last message"
        self._append_base(base)
        self.history = History(base)
        self._released = max(self._released, base.last_sequence)
        await self._records.wait()
        self._release_records()

    async def _idle(self) -> None:
        while not self._records.idle or self.failure is not None:
            await self._records.wait()

    def check(self, container_epoch: int) -> None:
        """Raises Deposed if a higher container epoch was promised, and the failure."""
        if self.failure is not None:
            raise self.failure
        if container_epoch != self.promised:
            raise self._deposed(container_epoch)

    def _deposed(self, container_epoch: int) -> Deposed:
        return Deposed(
            "the copy of the log promised another container epoch",
            container=self.container, container_epoch=container_epoch, promised=self.promised,
        )  # fmt: skip

    def close(self, reason: AnabranchError) -> None:
        """Write nothing more and end the leader; harmless to repeat."""
        self._records.close(reason)

    # --- reading ------------------------------------------------------------------------------

    async def read(self, counted: Counted) -> bytes:
        """The whole message, checksum verified; does not block commits.

        Raises ObjectNotFound if it was released, CorruptJournal, the failure, Unavailable.
        """
        data = await self._records.read(counted.record)
        self._verified(data, counted)
        return data

    async def read_payload(self, counted: Counted) -> bytes:
        """The message's payload; otherwise like `read`."""
        data = await self._records.read(counted.record)
        return bytes(self._verified(data, counted))

    async def read_payloads(
        self, wanted: Sequence[Counted]
    ) -> AsyncIterator[tuple[Counted, bytes]]:
        """The payloads of synced messages of the history, which are in order; blocks commits.

        Raises the errors of `read`.
        """
        if not wanted:
            return
        waiting = iter(wanted)
        found = next(waiting)
        async for number, data in self._records.read_from(found.record):
            if number != found.record:
                continue
            yield found, bytes(self._verified(data, found))
            following = next(waiting, None)
            if following is None:
                return
            found = following
        raise ObjectNotFound("the record was released", record=found.record)

    def _verified(self, data: bytes, counted: Counted) -> memoryview:
        message, payload = decode_message(data, self.seed, counted.record)
        if message.crc != counted.link.crc:
            raise CorruptJournal(
                "another message is in the place of one", container=self.container,
                record=counted.record,
            )  # fmt: skip
        return payload

    # --- opening ------------------------------------------------------------------------------

    def restored(self, promised: int, anchor: int, promise_record: int) -> None:
        """Note the facts that the records show, at open."""
        self.promised = promised
        self._anchor = anchor
        self._promise_record = promise_record

    def begin(self, container_epoch: int, base: Link) -> None:
        """Write the first record of a new copy."""
        self.promised = container_epoch
        self._append_base(base)

    async def written(self) -> None:
        """Wait until all records so far are synced. Raises the failure, Unavailable."""
        await self._records.wait()


async def open_copy(local: Local, container: int, name: str) -> Copy | None:
    """Open a copy that the local log has; None if it was never begun.

    Raises LogNotHere, CorruptJournal, FormatTooNew, Unavailable.
    """
    parsed = parse_copy_name(name)
    assert parsed is not None, "only copies are opened"
    seed = log_seed(parsed[0])
    records = Records(local, container)
    found: list[Record] = []
    promised = promise_record = 0
    with _closing_on_error(records):
        async for number, data in records.open(name):
            record = decode_record(data, seed, number)
            found.append(record)
            if record.message.container_epoch >= promised:
                promised, promise_record = record.message.container_epoch, number
        result = replayed(found)
    if result is None:
        records.close(Unavailable("the copy of the log was never begun", container=container))
        return None
    copy = Copy(records, container, parsed, result.history)
    copy.restored(result.promised, result.anchor or 0, promise_record)
    return copy


async def begin_copy(
    local: Local, container: int, name: str, container_epoch: int, base: Link
) -> Copy:
    """Begin a copy behind `base`, in a log that was just created; durable on return.

    Raises the errors of `open_copy`.
    """
    parsed = parse_copy_name(name)
    assert parsed is not None, "only copies are begun"
    records = Records(local, container)
    with _closing_on_error(records):
        async for number, _ in records.open(name):
            raise CorruptJournal("a new log has records", container=container, record=number)
        copy = Copy(records, container, parsed, History(base))
        copy.begin(container_epoch, base)
        await copy.written()
    return copy


@contextmanager
def _closing_on_error(records: Records) -> Iterator[None]:
    try:
        yield
    except BaseException:
        records.close(Unavailable("the copy of the log was not opened"))
        raise
