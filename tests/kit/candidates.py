"""The stores as candidates of elections: none, or those that a test describes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.common.errors import AnabranchError, Deposed, Unavailable
from anabranch.common.model.cluster import LogCopy
from anabranch.controller.domain.cluster.election import CopyEnd, Promised


class NoCandidates:
    """`Candidates` of a cluster without replicated logs."""

    async def promise(
        self, node_id: str, container: int, log_id: str, container_epoch: int
    ) -> Promised:
        """See `Candidates.promise`: no store answers."""
        raise Unavailable("no store replicates logs", store=node_id, container=container)


@dataclass
class KnownCopy:
    """A copy that a store has. `end`: its last message."""

    copy: LogCopy
    log_id: str
    end: CopyEnd
    promised: int = 0


@dataclass
class KnownCopies:
    """`Candidates` with copies in memory. `check` raises the error of a store that does not
    answer."""

    check: Callable[[str], None] = lambda _node: None
    copies: dict[tuple[str, int], KnownCopy] = field(default_factory=dict)
    """By node and container."""
    lives: int = 0
    """The copies that simulated stores have created."""
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    """Node, container and epoch of every request."""

    def put(self, node: str, container: int, *, epoch: int, number: int, life: int = 1) -> LogCopy:
        """Give a store a copy; `life` counts the copies that it had."""
        copy = LogCopy(node, f"{node}-{life}")
        end = CopyEnd(epoch, number, 10 * number)
        self.copies[node, container] = KnownCopy(copy, "log", end)
        return copy

    async def promise(
        self, node_id: str, container: int, log_id: str, container_epoch: int
    ) -> Promised:
        """See `Candidates.promise`."""
        self.asked.append((node_id, container, container_epoch))
        self.check(node_id)
        known = self.copies.get((node_id, container))
        if known is None or known.log_id != log_id:
            return Promised("", None)
        if container_epoch < known.promised:
            raise Deposed("a higher epoch was promised", promised=known.promised)
        known.promised = container_epoch
        return Promised(known.copy.copy_id, known.end)


def refusing(*nodes: str, error: AnabranchError | None = None) -> Callable[[str], None]:
    """A `check` by which these stores do not answer."""

    def check(node: str) -> None:
        if node in nodes:
            raise error or Unavailable("the store does not run", store=node)

    return check
