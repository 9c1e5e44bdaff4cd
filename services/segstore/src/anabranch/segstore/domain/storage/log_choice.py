"""Chooses the log with which a container continues at this store: an existing one, or a new one.

In a journal:

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

On servers that several stores share, there is no list of a container's logs, so tier 2 always tells
which log to look for:

    tier 2's newest manifest names an open log that exists     → that one
    it names a closed log that the placement names, too        → that one, if it exists
    tier 2 has no manifest, and the placement's log exists     → that one
    the placement names a log that is missing and not closed   → LogNotHere
    otherwise                                                  → a new one

There, the store that closed a log deletes it once the placement names it no more. A placement that
does not name the closed log is thus the reason not to continue it. The same holds for a log that
stores replicate: each store knows its own copy only.
"""

from dataclasses import dataclass

from anabranch.common.errors import LogNotHere
from anabranch.common.model.cluster import REPLICATED
from anabranch.common.tier2.manifest import LogBinding


@dataclass(frozen=True, slots=True)
class LogsHere:
    """The container's log here: its id, if there is one, and whether it holds frames.

    `listing`: whether `listed` is all that the container has here, as in a journal; otherwise it
    tells only of the log that was looked for.
    """

    listed: str | None
    has_frames: bool
    listing: bool = True


def is_plain(placed: str, here: LogsHere) -> bool:
    """Whether the choice does not depend on tier 2. `placed`: the placement's log id, or ""."""
    return here.listing and here.listed == (placed or None)


def choose_log(
    container: int, placed: str, here: LogsHere, newest: LogBinding | None, home: str = ""
) -> str | None:
    """The id of the log to open; None for a new one, before which a listed one is removed.

    `newest`: the log of the newest manifest, if there is one; ignored if the choice is plain.
    `home`: the place of the logs. Raises LogNotHere.
    """
    if is_plain(placed, here):
        return here.listed
    named = newest
    if not here.listing:
        named = _shared_log(placed, newest)
    if named is not None and named.log_id == here.listed and not named.closed:
        return here.listed
    if placed and (newest is None or not newest.closed):
        if home == REPLICATED:
            raise LogNotHere(
                "this store has no copy of the container's log",
                remedy="nothing, if another store has one: the controllers elect it; otherwise "
                       f"`anabranch container explain {container}`",
                container=container, log_id=placed,
            )  # fmt: skip
        if not here.listing:
            raise LogNotHere(
                "the container's log is not on the NATS servers",
                remedy="restore its stream on the servers; if it is lost for good, "
                       f"`anabranch container abandon-tail {container} --to STORE`",
                container=container, log_id=placed,
            )  # fmt: skip
        raise LogNotHere(
            "the container's log is not in this store's journal",
            remedy="start the store with the data directory that holds the log; if it is lost "
                   f"for good, `anabranch container abandon-tail {container} --to STORE`",
            container=container, log_id=placed,
        )  # fmt: skip
    return here.listed if here.listing and not here.has_frames else None


def _shared_log(placed: str, newest: LogBinding | None) -> LogBinding:
    """The log to continue on shared servers; closed if none is."""
    if newest is None or newest.log_id == placed:
        return LogBinding(placed)
    return newest
