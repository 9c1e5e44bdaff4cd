"""The users of a container's durable frames, whom it notifies after it has answered.

    frame applied ──► traffic ──► changed partitions ──► table indexes ──► flusher

No caller waits for these notices.
"""

from collections.abc import Callable, Sequence

from anabranch.segstore.domain.container.operations import Operation
from anabranch.segstore.domain.load.partitions import Partitions
from anabranch.segstore.domain.load.traffic import Traffic
from anabranch.segstore.shell.memory.applied import Applied


class FrameNotices:
    """The notices of one container. `leads_topics`: it is a container of topics."""

    def __init__(self, applied: Applied, *, leads_topics: bool) -> None:
        self._applied = applied
        self.traffic = Traffic()
        self.partitions = Partitions() if leads_topics else None
        """None in a container of streams."""
        self.on_tables: Callable[[set[int], list[int]], None] = lambda _changed, _gone: None
        """Gets the numbers of the segments that a frame changed, and of deleted table segments."""
        self.on_applied: Callable[[], None] = lambda: None

    def merged(self, operation: Operation, events: int) -> None:
        """A merge of `events` events was applied."""
        self.traffic.add_merged(operation, events, self._applied.state.living)

    def frame_applied(self, operations: Sequence[Operation], touched: set[int]) -> None:
        """All operations of a frame were applied; `touched`: the numbers of their segments."""
        applied = self._applied
        self.traffic.add(operations, applied.state.living)
        if self.partitions is not None:
            self.partitions.touch(touched)
        if applied.state.tables or applied.gone_tables:
            self.on_tables(touched, applied.take_gone_tables())
        self.on_applied()
