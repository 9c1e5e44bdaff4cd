"""Reader groups over topics: the partitions are shared among the readers of a group.

The group is a reader group of the scope `topics` whose streams are the backing streams. It has all
that reader groups have: saved progress, takeover from dead readers, new partitions as the
successors of the rest segment. This module adds topics, partitions and record numbers.

A group belongs to the incarnations of its topics. If a topic was deleted, its readers raise
`TopicNotFound`; delete the group and create it again for a new topic of the name.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from typing_extensions import TypeVar

from anabranch.client.groups.admin import ReaderGroups
from anabranch.client.groups.group import ReaderGroup
from anabranch.client.groups.reader import GroupReaderSettings
from anabranch.client.groups.status import ReaderGroupStatus
from anabranch.client.serializers import Serializer
from anabranch.client.topics.group_reader import TopicGroupReader
from anabranch.client.topics.layout import read_layout
from anabranch.client.wire.control import ControlPlane
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.errors import InvalidRequest, ReaderGroupExists

T = TypeVar("T", default=bytes)

GroupBeginning = Literal["beginning", "end"]


class TopicGroup:
    """A reader group over topics; made by `client.topics.group`.

    ::

        group = client.topics.group("billing", ["orders"])
        await group.create()
        async with group.reader() as reader:
            async for record in reader:
                print(record.partition, record.offset, record.value)
    """

    def __init__(
        self,
        group: ReaderGroup,
        topics: Sequence[str],
        *,
        admin: ReaderGroups,
        control: ControlPlane,
        calls: Callable[[str], SegmentCalls],
    ) -> None:
        self.group = group
        """The reader group behind it, with its checkpoints and resets."""
        self._topics = topics
        self._admin = admin
        self._control = control
        self._calls = calls

    def __str__(self) -> str:
        return str(self.group)

    async def create(self, start: GroupBeginning = "beginning") -> None:
        """Create the group unless it exists, to read its topics from their beginning or their end.

        Raises TopicNotFound, TopicNotProvisioned, InvalidRequest (no topics were given).

        ::

            await client.topics.group("billing", ["orders"]).create(start="end")
        """
        if not self._topics:
            raise InvalidRequest("a group reads at least one topic", group=str(self.group))
        if start not in ("beginning", "end"):
            raise InvalidRequest(
                f"a group cannot start at {start!r}"[:200], remedy="start at beginning or end"
            )
        layouts = [await read_layout(self._control, topic) for topic in self._topics]
        try:
            await self._admin.create(
                str(self.group),
                streams=[str(layout.stream) for layout in layouts],
                start="head" if start == "beginning" else "tail",
            )
        except ReaderGroupExists:
            return

    async def delete(self) -> None:
        """Delete the group with its progress. Raises ReaderGroupNotFound.

        ::

            await client.topics.group("billing").delete()
        """
        await self._admin.delete(str(self.group))

    async def status(self) -> ReaderGroupStatus:
        """Its readers, the segments of each, and the unread bytes. Raises ReaderGroupNotFound.

        ::

            status = await client.topics.group("billing").status()
        """
        return await self.group.status()

    def reader(
        self,
        reader_id: str | None = None,
        settings: GroupReaderSettings | None = None,
        *,
        serializer: Serializer[T] | None = None,
    ) -> TopicGroupReader[T]:
        """A reader of a share of the partitions; enter it with `async with`. The values are those
        of its `serializer`; without one, bytes. Raises InvalidName.

        ::

            async with client.topics.group("billing").reader("worker-1") as reader:
                async for record in reader:
                    print(record.partition, record.offset, record.value)
        """
        return TopicGroupReader(
            self.group.reader(reader_id, settings, serializer=serializer),
            control=self._control,
            calls=self._calls,
        )
