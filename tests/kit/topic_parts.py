"""Names of a topic's segments, and a container of topics, for tests of the segment store."""

from anabranch.common.model.topics import (
    TOPIC_CONTAINER_MIN,
    backing_stream,
    segment_number,
    topic_name,
)
from anabranch.segstore.ports import StoredCatalog
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.lease import Lease
from anabranch.segstore.shell.container.surroundings import Surroundings

STREAM = backing_stream(topic_name("orders"), "0123456789ab")


def partition(ordinal: int, container: int = TOPIC_CONTAINER_MIN) -> str:
    """The name of the segment of the topic with this ordinal."""
    return f"{STREAM}/{segment_number(ordinal, container)}.#epoch.0"


class TopicContainer(Container):
    """A container of topics, for a driver whose log is that of container 0."""

    def __init__(
        self,
        container: int,
        container_epoch: int,
        stored: StoredCatalog,
        around: Surroundings,
        lease: Lease,
    ) -> None:
        super().__init__(TOPIC_CONTAINER_MIN + container, container_epoch, stored, around, lease)
