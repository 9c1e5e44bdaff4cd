"""Load reports: what each segment store tells the controllers of every period that has passed.

Published on `subjects.load_report(<node id>)` at the end of each period, to all subscribers;
nothing keeps them. A period in which segments were written to is short, any other one is long. A
report covers the time since the one before it, so a receiver that holds sequence n and n + 1 of one
session knows all of period n + 1, and one that misses a sequence knows that it does not know. A
container that the two show under different container epochs was opened in between, and the later
one covers a part of the period only.
"""

from typing import Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract

LOAD_REPORT_SIZE_BYTES_MAX = 512 * 1024
"""Of the message."""


class MergedLoad(Contract):
    """The content that commits of transactions brought; `size` in bytes. On average over the
    events, the transactions were open for `over_ms`."""

    events: int = Field(ge=0)
    size: int = Field(ge=0)
    over_ms: int = Field(ge=0)


class SegmentLoad(Contract):
    """The durable appends to a segment within the period; `size` in bytes.

    `merged`: the part of it that commits brought, if any did.
    """

    segment: str
    events: int = Field(ge=0)
    size: int = Field(ge=0)
    merged: MergedLoad | None = None


class ContainerLoad(Contract):
    """A container that the store served at the end of the period.

    `segments`: those that were appended to, the largest first. Truncations are no load, nor are
    merges other than commits, and transient segments are not told.
    """

    container: int
    container_epoch: int
    segments: tuple[SegmentLoad, ...] = ()


class LoadReport(Contract):
    """One period of one store.

    `session` is drawn anew at each start of the process; `sequence` counts its reports from 1,
    those that could not be sent too. The period began at `start_ms` (Unix time by the store's
    clock). `others_idle`: nothing was appended to segments of these containers that are not
    listed; false when there were too many to list. `due_ms`: the next report follows within this
    time; 0: as long as this period was.
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
