"""What listings of streams and groups answer, by reading aggregates at their heads."""

from collections.abc import Callable, Collection, Mapping, Sequence

from anabranch.common.contracts.place import STREAM, Part
from anabranch.common.contracts.subjects import group_events, stream_events
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.reader_group import GroupRef
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.state import Stream


class Listing:
    """`StreamListing` and `GroupListing` by reading aggregates at their heads.

    `names` are those of streams that may live.
    """

    def __init__(
        self,
        streams: Repository[Stream, StreamEvent],
        groups: Repository[ReaderGroup, GroupEvent],
        known: Callable[[StreamRef], Loaded[Stream] | None] = lambda _: None,
        names: Collection[StreamName] = (),
    ) -> None:
        self._streams = streams
        self._groups = groups
        self._known = known
        self._seen: dict[StreamRef, Loaded[Stream]] = {}
        self.names = set(names)

    def stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        """See `StreamListing.stream`."""
        return self._seen.get(ref) or self._known(ref)

    async def stream_at_head(self, ref: StreamRef) -> Loaded[Stream] | None:
        """See `StreamListing.stream_at_head`."""
        loaded = await self._streams.load(stream_events(ref))
        return loaded if loaded.revision else None

    async def group_at_head(self, ref: GroupRef) -> Loaded[ReaderGroup] | None:
        """See `GroupListing.group_at_head`."""
        loaded = await self._groups.load(group_events(ref))
        return loaded if loaded.revision else None

    async def live_parts(self, scope: ScopeName, incarnation: int) -> Mapping[Part, Sequence[str]]:
        """See `StreamListing.live_parts`; of streams only."""
        found = []
        for name in sorted(self.names):
            ref = StreamRef(scope, name)
            self._seen[ref] = loaded = await self._streams.load(stream_events(ref))
            if loaded.state.is_live and loaded.state.scope_incarnation == incarnation:
                found.append(name)
        return {STREAM: found}
