"""The boundary between a container and the journal: a defect in one container ends only that one.

The journal notifies one container after another of its durable frames, in one turn of the event
loop. If taking or applying a frame raises an unexpected exception, its container ends with a
`Defect`. Its clients repeat the requests that were not acknowledged, and its keeper logs the defect
and reopens the container from the log. The other containers of the same commit continue.
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
        """See `ports.FrameSource`; None if a defect ended the container."""
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
