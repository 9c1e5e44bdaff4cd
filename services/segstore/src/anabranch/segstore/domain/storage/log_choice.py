"""Chooses the log with which a container continues in this journal: an existing one, or a new one.

    the journal has the log that the placement names           → that one
    tier 2's newest manifest continues in the journal's log    → that one
    the placement names a log that is missing and not closed   → LogNotHere
    the journal has a log without frames                       → that one
    the journal has no log, or one with frames                 → a new one; the old one is removed

A placement names the log from before the container serves until it is released. A log in the
journal that neither the placement nor tier 2 names thus served no container that still counts.
Either an open that did not complete created it, and its fence manifest may still appear, so a log
without frames remains the one to use. Or an operator gave it up, and the container has lived
elsewhere since.
"""

from dataclasses import dataclass

from anabranch.common.errors import LogNotHere
from anabranch.common.tier2.manifest import LogBinding


@dataclass(frozen=True, slots=True)
class LogsHere:
    """The journal's log of the container: its id, if there is one, and whether it holds frames."""

    listed: str | None
    has_frames: bool


def is_plain(placed: str, here: LogsHere) -> bool:
    """Whether the choice does not depend on tier 2. `placed`: the placement's log id, or ""."""
    return here.listed == (placed or None)


def choose_log(
    container: int, placed: str, here: LogsHere, newest: LogBinding | None
) -> str | None:
    """The id of the log to open; None for a new one, before which an existing one is removed.

    `newest`: the log of the newest manifest, if there is one; ignored if the choice is plain.
    Raises LogNotHere.
    """
    if is_plain(placed, here):
        return here.listed
    if newest is not None and newest.log_id == here.listed and not newest.closed:
        return here.listed
    if placed and (newest is None or not newest.closed):
        raise LogNotHere(
            "the container's log is not in this store's journal",
            remedy="start the store with the data directory that holds the log; if it is lost "
                   f"for good, `anabranch container abandon-tail {container} --to STORE`",
            container=container, log_id=placed,
        )  # fmt: skip
    return None if here.has_frames else here.listed
