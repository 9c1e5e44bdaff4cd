"""The start-up probe of tier 2: does the back end create a name once only?

The fence of every container rests on it. Eight racers create the same fresh name, each with
its own content; exactly one may succeed, and its content must be what is read back.
"""

import asyncio

from anabranch.common.errors import AnabranchError, InvalidSetting, ObjectExists
from anabranch.common.runtime.ids import IdSource
from anabranch.common.storage.ports import ChunkStorage

RACERS = 8


async def probe_create_only(storage: ChunkStorage, ids: IdSource) -> None:
    """Raises InvalidSetting if not exactly one of eight racers wins, and what the puts raise."""
    name = f"probe/{ids.new_id()}"
    async with asyncio.TaskGroup() as group:
        racers = [group.create_task(_race(storage, name, racer)) for racer in range(RACERS)]
    outcomes = [racer.result() for racer in racers]
    for outcome in outcomes:
        if isinstance(outcome, AnabranchError):
            raise outcome
    winners = [racer for racer, won in enumerate(outcomes) if won]
    if len(winners) != 1:
        raise _refused("several writers created the same object", winners=len(winners))
    if await storage.get(name) != _content(winners[0]):
        raise _refused("an object holds what a refused writer wrote", winners=1)
    await storage.delete(name)


async def _race(storage: ChunkStorage, name: str, racer: int) -> bool | AnabranchError:
    """Whether this racer created the object; another error is a value, so that it has a name."""
    try:
        await storage.put_new(name, [_content(racer)])
    except ObjectExists:
        return False
    except AnabranchError as error:
        return error
    return True


def _content(racer: int) -> bytes:
    return b"racer %d" % racer


def _refused(what: str, winners: int) -> InvalidSetting:
    return InvalidSetting(
        f"tier 2 cannot be used: {what}",
        remedy="choose a back end for tier 2 with create-only writes",
        winners=winners,
    )
