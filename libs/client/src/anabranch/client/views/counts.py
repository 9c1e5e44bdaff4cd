"""Counts the work of an open view."""

from dataclasses import dataclass


@dataclass(slots=True)
class ViewCounts:
    """Counts since the view was opened, for `View.status`.

    `folded`: the events that were folded into rows. `skipped`: the events that came again, and that
    the rows reflected already. `saved`: the rows that were put or removed. `conflicts`: the updates
    that were refused because another process had changed a row or a position first.
    """

    folded: int = 0
    skipped: int = 0
    saved: int = 0
    conflicts: int = 0
