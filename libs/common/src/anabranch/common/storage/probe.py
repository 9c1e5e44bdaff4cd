"""The start-up probe of tier 2: checks that the back end creates a name only once.

The fence of every container rests on this. Eight racers create the same fresh name, each with its
own content; exactly one may succeed, and a read must return its content.
"""

from anabranch.common.errors import InvalidSetting, ObjectExists
from anabranch.common.runtime.ids import IdSource
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.workflow.bounded import for_each

RACERS = 8


async def probe_create_only(storage: ChunkStorage, ids: IdSource) -> None:
    """Raises InvalidSetting if not exactly one of eight racers wins, and the errors of the puts."""
    name = f"probe/{ids.new_id()}"
    winners: list[int] = []

    async def race(racer: int) -> None:
        if await _wins(storage, name, racer):
            winners.append(racer)

    await for_each(range(RACERS), RACERS, race)
    if len(winners) != 1:
        raise _refused("several writers created the same object", winners=len(winners))
    if await storage.get(name) != _content(winners[0]):
        raise _refused("an object holds the bytes of a refused writer", winners=1)
    await storage.delete(name)


async def _wins(storage: ChunkStorage, name: str, racer: int) -> bool:
    """Whether this racer created the object. Raises the errors of the put, except ObjectExists."""
    try:
        await storage.put_new(name, [_content(racer)])
    except ObjectExists:
        return False
    return True


def _content(racer: int) -> bytes:
    return b"racer %d" % racer


def _refused(what: str, winners: int) -> InvalidSetting:
    return InvalidSetting(
        f"tier 2 cannot be used: {what}",
        remedy="choose a back end for tier 2 with create-only writes",
        winners=winners,
    )
