"""Which log a container goes on with in this journal: one that it has here, or a new one.

    the log that its placement names is here                   → that one
    tier 2's newest manifest goes on in the one that is here   → that one
    the placement names one that is not here, and not closed   → LogNotHere
    one is here, without frames                                → that one
    none is here, or one with frames                           → a new one, and that one goes

A placement names the log from before the container serves until it is released. So a log that is
here and that neither the placement nor tier 2 names served nobody that still counts: it was made
by an open that did not come to its end, whose fence manifest may still appear, so that one without
frames stays the one to use; or an operator gave it up, and the container has lived elsewhere since.
"""

from dataclasses import dataclass

from anabranch.common.errors import LogNotHere
from anabranch.common.tier2.manifest import LogBinding


@dataclass(frozen=True, slots=True)
class LogsHere:
    """What the journal has for the container: a log id or none, and whether it holds frames."""

    listed: str | None
    has_frames: bool


def is_plain(placed: str, here: LogsHere) -> bool:
    """Whether the choice needs no look at tier 2. `placed`: the placement's log id, or ""."""
    return here.listed == (placed or None)


def choose_log(
    container: int, placed: str, here: LogsHere, newest: LogBinding | None
) -> str | None:
    """The id of the log to open; None for a new one, before which any that is here is removed.

    `newest`: the log of the newest manifest, if there is one; not looked at if the choice is
    plain. Raises LogNotHere.
    """
    if is_plain(placed, here):
        return here.listed
    if newest is not None and newest.log_id == here.listed and not newest.closed:
        return here.listed
    if placed and (newest is None or not newest.closed):
        raise LogNotHere(
            "the container's log is not in this store's journal",
            remedy="start the store with the data directory that holds the log; if it is lost "
                   "for good, see `anabranch container abandon-tail`",
            container=container, log_id=placed,
        )  # fmt: skip
    return None if here.has_frames else here.listed
