"""Judges how stores keep their promises, by what they answer and nothing else.

A copy that promised a container epoch answers no request of a lower one, and reports no message
under it, whatever happened to its store since.
"""

from collections.abc import Callable, Iterable

from anabranch.segstore.ports_replica import CopyState


class Promises:
    """Raises AssertionError when a promise is broken."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        """By copy id, of which each is drawn once."""
        self.at_promise: Callable[[str], None] = _nothing
        """Called once, with the node, when the next promise to a controller is answered."""
        self.at_reset: Callable[[str], None] = _nothing
        """Called once, with the node, when the next copy was created again."""

    def forget(self, copy_ids: Iterable[str]) -> None:
        """These copies are lost with their disk."""
        for copy_id in copy_ids:
            self._highest.pop(copy_id, None)

    def promised(self, node: str, container_epoch: int, state: CopyState) -> None:
        """A store sends the answer to a promise. Without a copy, it promised nothing durable."""
        if state.copy_id:
            self.kept(node, container_epoch, state.copy_id)
            self._highest[state.copy_id] = container_epoch

    def answered(self, node: str) -> None:
        """A store promised something to a controller."""
        told, self.at_promise = self.at_promise, _nothing
        told(node)

    def reset(self, node: str) -> None:
        """A store created its copy again."""
        told, self.at_reset = self.at_reset, _nothing
        told(node)

    def kept(self, node: str, container_epoch: int, copy_id: str) -> None:
        """A copy reports something under a container epoch."""
        highest = self._highest.get(copy_id, 0)
        assert container_epoch >= highest, (
            f"the copy at {node} promised epoch {highest}, and answers under {container_epoch}"
        )


def _nothing(_node: str) -> None:
    return
