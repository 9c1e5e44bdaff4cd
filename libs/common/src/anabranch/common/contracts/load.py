"""Load reports: each segment store reports every period that has passed to the controllers.

A store publishes a report on `subjects.load_report(<node id>)` at the end of each period, to all
subscribers; no stream keeps it. A period with appends is short, any other one is long. A report
covers the time since the one before it. A receiver that holds sequences n and n + 1 of one session
therefore knows all of period n + 1, and a missing sequence shows it a gap. If two consecutive
reports show a container under different container epochs, the container was opened in between, and
the later report covers only a part of the period.
"""

from typing import Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract

LOAD_REPORT_SIZE_BYTES_MAX = 512 * 1024
"""The largest size of a report."""


class MergedLoad(Contract):
    """The events that commits of transactions merged; `size` in bytes.

    `over_ms`: how long the transactions were open, averaged over the events.
    """

    events: int = Field(ge=0)
    size: int = Field(ge=0)
    over_ms: int = Field(ge=0)


class KeySketch(Contract):
    """A sample of the events that were appended to a segment lately, by their places in the key
    space; the older an event, the less likely it is in the sample. Sizes are in bytes.

    `positions` ascend, in units of 2^-32 of the key space. `events` and `sizes` are parallel to
    them: so many sampled events, with so many bytes, lie there or between there and the position
    before. If that is more than a 32nd of the sample, in events or in bytes, all of it lies there:
    it is one routing key. `keyless_events` have no key. The store does not know the keys of
    `unread_events`, because they are compressed.
    """

    positions: tuple[int, ...]
    events: tuple[int, ...]
    sizes: tuple[int, ...]
    keyless_events: int = 0
    keyless_size: int = 0
    unread_events: int = 0


class SegmentLoad(Contract):
    """The durable appends to a segment within the period; `size` in bytes.

    `merged`: the part of them that commits merged; None: none. `keys`: where the keys lie, if the
    segment is one of the busiest of its store.
    """

    segment: str
    events: int = Field(ge=0)
    size: int = Field(ge=0)
    merged: MergedLoad | None = None
    keys: KeySketch | None = None


class ContainerLoad(Contract):
    """A container that the store served at the end of the period.

    `segments`: the segments with appends, the largest first. Truncations, and merges other than
    commits, do not count as load. Reports omit transient segments.
    """

    container: int
    container_epoch: int
    segments: tuple[SegmentLoad, ...] = ()


class LoadReport(Contract):
    """One period of one store.

    `session` is drawn anew at each start of the process; `sequence` counts its reports from 1,
    including unsent ones. The period began at `start_ms` (Unix time by the store's clock).
    `others_idle`: segments of these containers that are not listed had no appends; false if there
    were too many to list. `due_ms`: the next report follows within this time; 0: within the length
    of this period.
    """

    schema_number: Literal[1] = 1
    node_id: str = Field(min_length=1, max_length=64)
    session: str = Field(min_length=1, max_length=64)
    sequence: int = Field(ge=1)
    start_ms: int
    length_ms: int = Field(ge=1)
    containers: tuple[ContainerLoad, ...]
    others_idle: bool
    due_ms: int = Field(default=0, ge=0)
