"""The edge of a container towards the journal: a defect in one ends that one alone.

The journal tells one container after another what became durable, in one turn of the event loop.
If taking or applying a frame raises what nobody expected, its container ends by name: its clients
repeat what was not acknowledged, and its keeper logs the defect and opens the container again from
the log. The other containers of the same commit go on.
"""

from anabranch.common.errors import AnabranchError, Defect
from anabranch.common.workflow.containment import naming_defects
from anabranch.segstore.ports import FrameContents, LogAddress
from anabranch.segstore.shell.container.container import Container


class ContainedSource:
    """Implements `ports.FrameSource` for an open container."""

    def __init__(self, container: Container) -> None:
        self._container = container

    def take_frame(self, size_max: int) -> FrameContents | None:
        """See `ports.FrameSource`; None if the container ended by a defect."""
        try:
            with naming_defects("taking a frame of a container"):
                return self._container.take_frame(size_max)
        except Defect as defect:
            self._container.fail(defect)
            return None

    def frame_durable(self, contents: FrameContents, address: LogAddress) -> None:
        """See `ports.FrameSource`."""
        try:
            with naming_defects("applying a frame of a container"):
                self._container.frame_durable(contents, address)
        except Defect as defect:
            self._container.fail(defect)

    def log_failed(self, error: AnabranchError) -> None:
        """See `ports.FrameSource`."""
        self._container.log_failed(error)

    def journal_failed(self, error: AnabranchError) -> None:
        """See `ports.FrameSource`."""
        self._container.journal_failed(error)
