"""`DurableDataLog` of the containers whose logs stores replicate among each other.

Each log has a copy in the journal of several stores. The owner of the container leads the log from
its own copy; `copies` also keeps the copies that other stores lead. The journal below is one for
all of them: its room, its files and its failures are those of this log.

State owned: the open views.
"""

from collections.abc import Sequence

from anabranch.common.errors import AnabranchError, Deposed, LogNotHere, Unavailable
from anabranch.common.model.cluster import REPLICATED
from anabranch.segstore.adapters.replicated_log.copies import Copies
from anabranch.segstore.adapters.replicated_log.led import Around, Led
from anabranch.segstore.adapters.replicated_log.opening import open_view
from anabranch.segstore.adapters.replicated_log.view import ReplicatedView
from anabranch.segstore.domain.log.pinning import LiveLogFile
from anabranch.segstore.domain.log.stream.messages import NOTHING
from anabranch.segstore.domain.storage.log_choice import LogsHere
from anabranch.segstore.ports import DurableDataLog, FrameSource
from anabranch.segstore.ports_replica import Replicas, ReplicationFacts


class ReplicatedLog:
    """The logs of a process. All calls come from the event loop's thread."""

    def __init__(self, local: DurableDataLog, copies: Copies, around: Around) -> None:
        """`local`: the journal that holds the copies; it is closed with this log."""
        self._local = local
        self._copies = copies
        self._around = around
        self._views: dict[int, ReplicatedView] = {}
        self._applied: dict[int, int] = {}
        """By container: the last operation that tier 2 has, for the next opening."""
        self._failure: AnabranchError | None = None

    # --- ports.DurableDataLog -----------------------------------------------------------------

    @property
    def journal_id(self) -> str:
        """No store has these logs for itself."""
        return REPLICATED

    @property
    def bound_to_store(self) -> bool:
        """See `DurableDataLog`."""
        return False

    @property
    def failure(self) -> AnabranchError | None:
        """See `DurableDataLog`."""
        return self._failure or self._local.failure

    @property
    def idle(self) -> bool:
        """Whether no view waits for an acknowledgement."""
        return all(view.idle for view in self._views.values())

    async def find_log(self, container: int, log_id: str) -> LogsHere:
        """See `DurableDataLog`: whether this store has a copy."""
        self._check_open()
        known = bool(log_id) and await self._copies.find(container, log_id) is not None
        return LogsHere(log_id if known else None, has_frames=False, listing=False)

    async def create_log(self, container: int, log_id: str) -> None:
        """See `DurableDataLog`. A copy of an older log goes."""
        self._check_open()
        if await self._copies.find(container, log_id) is None:
            epoch = self._copies.promised(container)
            await self._copies.create(container, log_id, epoch, NOTHING)

    async def remove_log(self, container: int, log_id: str) -> None:
        """See `DurableDataLog`: this store's copy of the log."""
        self._check_open()
        view = self._views.pop(container, None)
        assert view is None or view.ended, "the log is in use"
        if log_id and await self._copies.find(container, log_id) is not None:
            await self._copies.remove(container)

    async def open_log(
        self, container: int, log_id: str, container_epoch: int, source: FrameSource
    ) -> ReplicatedView:
        """See `DurableDataLog`. Also raises WrongHost."""
        self._check_open()
        applied = self._applied.pop(container, 0)
        copy = await self._copies.find(container, log_id)
        if copy is None:
            raise LogNotHere(
                "this store has no copy of the container's log",
                container=container, log_id=log_id,
            )  # fmt: skip
        if container_epoch <= copy.promised:
            raise Deposed(
                "the container was already opened under this epoch or a higher one",
                container=container, container_epoch=container_epoch, highest=copy.promised,
            )  # fmt: skip
        await copy.promise(container_epoch)
        older = self._views.pop(container, None)
        if older is not None:
            older.fail(Deposed("the container was opened again", container_epoch=container_epoch))
        led = Led(container, container_epoch, log_id, copy, self._local, self._around)
        view = await open_view(led, source, applied)
        self._check_open()
        self._views[container] = view
        return view

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure

    @property
    def no_room(self) -> AnabranchError | None:
        """See `DurableDataLog`."""
        return self._local.no_room

    def try_again(self) -> None:
        """See `DurableDataLog`. Also has the last messages of idle logs hold up no old files."""
        self._local.try_again()
        *old, _ = self._local.live_files() or (None,)
        pinning = frozenset[int]().union(*(file.pinned_by for file in old if file is not None))
        for container in pinning & self._views.keys():
            self._views[container].unpin()

    @property
    def live_size(self) -> int:
        """See `DurableDataLog`."""
        return self._local.live_size

    def live_files(self) -> Sequence[LiveLogFile]:
        """See `DurableDataLog`."""
        return self._local.live_files()

    def close(self) -> None:
        """End all views and the journal. Harmless to repeat."""
        if self._failure is not None:
            return
        self._failure = Unavailable("the log was closed")
        views = list(self._views.values())
        self._views.clear()
        for view in views:
            view.fail_with_store(self._failure)
        self._copies.close()
        self._local.close()

    # --- ports_replica.ReplicatedLogs ---------------------------------------------------------

    def continue_above(self, container: int, applied_sequence: int) -> None:
        """Tier 2 has the container's operations up to here; call it before `open_log`."""
        self._applied[container] = applied_sequence

    def replicas_changed(self, container: int, container_epoch: int, replicas: Replicas) -> None:
        """The placement names these replicas, under this epoch. A higher one ends the view."""
        view = self._views.get(container)
        if view is None or container_epoch < view.container_epoch:
            return
        if container_epoch == view.container_epoch:
            view.replicas_changed(replicas)
            return
        newer = Deposed(
            "a newer container epoch was taken",
            container=container, container_epoch=view.container_epoch, found=container_epoch,
        )  # fmt: skip
        view.fail(newer)

    def describe(self, container: int) -> ReplicationFacts | None:
        """The replication of a log that this store leads; None for others."""
        view = self._views.get(container)
        return None if view is None or view.ended else view.facts()
