"""Ends the transient segments that an earlier opening of a container left in tier 2.

The replay loads the transient segments that the log names, and these end when the container begins
to serve. Only the catalog knows the others, so it is searched once while the container serves.
Segments created since the opening have higher numbers and stay.
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
    """Request the end of all leftovers, retrying while tier 2 does not answer.

    If tier 2 is damaged, the container ends.
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
    """The names; no more than a container may have transient segments."""
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
        container.loading.first((name,), lambda: container.end_transients([name]), refuse)
    except AnabranchError as error:
        refuse(error)
