"""Ending the transient segments that an earlier opening of a container left in tier 2.

Those that the log is about were loaded by the replay and end when the container begins to serve;
of others only the catalog knows, so it is looked through once, beside the requests. What was
created since the opening has a higher number and stays.
"""

import structlog

from anabranch.common.errors import AnabranchError, DiskFailed, Unavailable
from anabranch.common.model.names import SegmentKind
from anabranch.common.runtime.clock import Clock
from anabranch.common.tier2.state import Tombstone
from anabranch.segstore.ports import StoredCatalog
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.pauses import BackOff

_log = structlog.get_logger(__name__)


async def end_leftovers(
    container: Container, stored: StoredCatalog, clock: Clock, back_off_s: BackOff
) -> None:
    """Return when all have been asked to end; tier 2 that does not answer is asked again.

    What damage tier 2 reports ends the container.
    """
    failures = 0
    while container.failure is None:
        try:
            names = await _leftovers(stored, container.opened_sequence)
        except (Unavailable, DiskFailed, OSError) as error:
            failures += 1
            _log.warning(
                "tier 2 could not be searched for transient segments, trying again",
                container=container.container,
                error=str(error),
            )
            await clock.sleep(back_off_s(failures))
            continue
        except AnabranchError as error:
            container.fail(error)
            return
        for name in names:
            _end(container, name)
        return


async def _leftovers(stored: StoredCatalog, opened_sequence: int) -> list[str]:
    """At most as many as a container may have."""
    return [
        entry.state.name
        async for entry in stored.entries()
        if not isinstance(entry, Tombstone)
        and entry.state.number <= opened_sequence
        and entry.state.kind is SegmentKind.TRANSIENT
    ]


def _end(container: Container, name: str) -> None:
    def refuse(error: AnabranchError) -> None:
        _log.warning("a transient segment stays until the next opening", error=str(error))

    try:
        container.load_first((name,), lambda: container.end_transients([name]), refuse)
    except AnabranchError as error:
        refuse(error)
