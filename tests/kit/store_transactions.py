"""Clients of a simulated store that write in transactions, and a controller that ends these.

The merge of a commit asks for no seal before it, races with what writers still send, and is
repeated word for word until it is answered, in whatever life that is.
"""

from dataclasses import dataclass

from anabranch.common.model.names import (
    number_of,
    parse_segment_name,
    segment_id,
    segment_name,
    transaction_segment,
    transaction_segment_name,
)
from anabranch.common.wire.messages import Stamp
from kit.rng import Random
from kit.store_requests import create, delete, merge
from kit.store_world import Client, World
from kit.store_writer import WriterScript

CREATED, ABORTED = Stamp(1, 1), Stamp(1, 2)


@dataclass(frozen=True)
class Commit:
    """One merge request, as it was decided."""

    target: str
    sources: tuple[str, ...]
    stamp: Stamp


class Transactions:
    """Transaction segments over all lives of one world."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._open: list[str] = []
        self._writers: dict[str, WriterScript] = {}
        self._commits: list[Commit] = []

    async def begin(self, client: Client, parent: str) -> None:
        """Make a segment beside the parent, of a part now and then."""
        part = self._rng.randbytes(16).hex() if self._rng.random() < 0.3 else ""
        name = transaction_segment_name(parent, self._rng.randbytes(16).hex(), part)
        await create(client, name, CREATED)
        self._open.append(name)
        history = self._world.history
        self._writers[name] = WriterScript(name, self._rng.randbytes(16), history, self._rng)

    async def write(self, client: Client) -> None:
        """Append to an open transaction, or to one that is just being merged."""
        if not self._writers:
            return
        writer = self._writers[self._rng.choice(sorted(self._writers))]
        if writer.beginning:
            return
        if (not writer.alive or writer.client is not client) and not await writer.begin(client):
            return
        for _ in range(self._rng.randrange(1, 4)):
            writer.send(client, self._rng.randrange(1, 3))

    async def commit(self, client: Client, stamp: Stamp) -> None:
        """Decide to merge what is open beside one segment, or repeat what was decided."""
        if self._commits and self._rng.random() < 0.5:
            commit = self._rng.choice(self._commits)
        else:
            decided = await self._decide(client, stamp)
            if decided is None:
                return
            commit = decided
        await merge(client, commit.target, commit.sources, commit.stamp)

    async def _decide(self, client: Client, stamp: Stamp) -> Commit | None:
        if not self._open:
            return None
        parent = _parent(self._rng.choice(self._open))
        together = [name for name in self._open if _parent(name) == parent]
        sources = tuple(self._rng.sample(together, self._rng.randrange(1, len(together) + 1)))
        self._open = [name for name in self._open if name not in sources]
        target = parent
        if self._rng.random() < 0.3:  # as if the stream's epoch had changed meanwhile
            stream, number = parse_segment_name(parent)
            target = segment_name(stream, segment_id(1, number_of(number)))
        commit = Commit(target, sources, stamp)
        self._commits.append(commit)
        if target != parent:
            await create(client, target, stamp)
        return commit

    async def abort(self, client: Client) -> None:
        """Delete a transaction segment, sometimes too late."""
        if not self._writers:
            return
        name = self._rng.choice(sorted(self._writers))
        if name in self._open:
            self._open.remove(name)
        await delete(client, name, ABORTED)


def _parent(name: str) -> str:
    found = transaction_segment(name)
    assert found is not None
    return found.parent
