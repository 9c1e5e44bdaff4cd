"""`DurableDataLog` over streams of a remote event log, one stream per container.

A log is bound to no store: any process that reaches the servers opens it under a higher container
epoch. A failure of one log ends its container alone, never the store.

State owned: the open views, and the last message of each log that this process saw confirmed.
"""

import asyncio
from collections.abc import Sequence

from anabranch.common.errors import AnabranchError, Deposed, LogNotHere, Unavailable
from anabranch.common.model.cluster import JETSTREAM
from anabranch.common.runtime.ids import IdSource
from anabranch.segstore.adapters.jetstream_log.opening import (
    ANSWER_S,
    Confirmed,
    OpenedStream,
    StreamOpening,
)
from anabranch.segstore.adapters.jetstream_log.view import Around, StreamView
from anabranch.segstore.domain.log.pinning import LiveLogFile
from anabranch.segstore.domain.log.stream.messages import (
    NOTHING,
    Kind,
    Opening,
    encode_opening,
    log_seed,
)
from anabranch.segstore.domain.storage.log_choice import LogsHere
from anabranch.segstore.ports import FrameSource
from anabranch.segstore.ports_stream import (
    PublishRefused,
    PublishUnknown,
    RemoteStreams,
    StreamFacts,
)

JOURNAL_ID = JETSTREAM


class StreamLog:
    """The logs of a process. All calls come from the event loop's thread."""

    def __init__(self, streams: RemoteStreams, around: Around, ids: IdSource) -> None:
        self._streams = streams
        self._around = around
        self._ids = ids
        self._views: dict[int, StreamView] = {}
        self._epochs: dict[int, int] = {}
        self._confirmed: dict[str, Confirmed] = {}
        """By log id: what the last view of this process knew to be durable."""
        self._failure: AnabranchError | None = None

    # --- ports.DurableDataLog -----------------------------------------------------------------

    @property
    def journal_id(self) -> str:
        """No store has these logs for itself."""
        return JOURNAL_ID

    @property
    def bound_to_store(self) -> bool:
        """See `DurableDataLog`."""
        return False

    @property
    def failure(self) -> AnabranchError | None:
        """See `DurableDataLog`: only `close` ends all logs."""
        return self._failure

    @property
    def idle(self) -> bool:
        """Whether no view waits for an answer."""
        return all(view.idle for view in self._views.values())

    async def find_log(self, container: int, log_id: str) -> LogsHere:  # noqa: ARG002
        """See `DurableDataLog`. Also raises Unavailable."""
        self._check_open()
        known = bool(log_id) and await self._streams.stream(log_id).describe() is not None
        return LogsHere(log_id if known else None, has_frames=False, listing=False)

    async def create_log(self, container: int, log_id: str) -> None:
        """See `DurableDataLog`. Also raises Unavailable, LogNotSynced.

        The stream's first message is an opening of epoch 0, so a stream without messages is
        never taken for an empty log.
        """
        self._check_open()
        await self._streams.create(log_id)
        facts = await self._described(container, log_id)
        await self._streams.check_synced(facts.peers)
        if facts.last_place:
            return
        opening = Opening(NOTHING, facts.created, self._ids.new_bytes())
        data, _ = encode_opening(container, 0, opening, log_seed(log_id))
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._streams.stream(log_id).publish(Kind.OPENING, data, 0)
        except (PublishRefused, PublishUnknown, TimeoutError) as error:
            raise Unavailable("the log's stream was not begun", log_id=log_id) from error

    async def remove_log(self, container: int, log_id: str) -> None:
        """See `DurableDataLog`. Also raises Unavailable."""
        self._check_open()
        view = self._views.pop(container, None)
        assert view is None or view.ended, "the log is in use"
        if log_id:
            await self._streams.delete(log_id)
            self._confirmed.pop(log_id, None)

    async def open_log(
        self, container: int, log_id: str, container_epoch: int, source: FrameSource
    ) -> StreamView:
        """See `DurableDataLog`. Also raises CorruptJournal, FormatTooNew, LogNotSynced."""
        self._check_open()
        highest = self._epochs.get(container, 0)
        if container_epoch <= highest:
            raise Deposed(
                "the container was already opened under this epoch or a higher one",
                container=container, container_epoch=container_epoch, highest=highest,
            )  # fmt: skip
        facts = await self._described(container, log_id)
        await self._streams.check_synced(facts.peers)
        self._epochs[container] = container_epoch
        older = self._views.pop(container, None)
        if older is not None:
            self._confirmed[older.log_id] = older.confirmed
            older.fail(Deposed("the container was opened again", container_epoch=container_epoch))
        seed = log_seed(log_id)
        stream = self._streams.stream(log_id)
        opening = StreamOpening(
            stream, self._around.clock, container=container, container_epoch=container_epoch,
            log_id=log_id, seed=seed, nonce=self._ids.new_bytes(),
            confirmed=self._confirmed.get(log_id),
        )  # fmt: skip
        opened: OpenedStream = await opening.run(facts)
        self._check_open()
        view = self._views[container] = StreamView(
            stream, opened, source, self._around, container=container, log_id=log_id, seed=seed
        )
        return view

    async def _described(self, container: int, log_id: str) -> StreamFacts:
        facts = await self._streams.stream(log_id).describe()
        if facts is None:
            raise LogNotHere(
                "the container's log has no stream", container=container, log_id=log_id
            )
        return facts

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure

    @property
    def no_room(self) -> AnabranchError | None:
        """See `DurableDataLog`: a full server refuses, and that ends one container."""
        return None

    def try_again(self) -> None:
        """See `DurableDataLog`."""

    @property
    def live_size(self) -> int:
        """Nothing is kept in this process."""
        return 0

    def live_files(self) -> Sequence[LiveLogFile]:
        """There are no files."""
        return ()

    def close(self) -> None:
        """End all views; what is in flight may still be stored. Harmless to repeat."""
        if self._failure is not None:
            return
        self._failure = Unavailable("the log was closed")
        views = list(self._views.values())
        self._views.clear()
        for view in views:
            view.fail_with_store(self._failure)
