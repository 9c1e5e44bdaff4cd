"""Load reports: what each segment store tells the controllers of every period that has passed.

Published on `subjects.load_report(<node id>)`, once per period and to whoever listens; nothing
keeps them. A report covers the time since the one before it, so a receiver that holds sequence n
and n + 1 of one session knows all of period n + 1, and one that misses a sequence knows that it
does not know. A container that the two show under different container epochs was opened in
between, and the later one covers a part of the period only.
"""

from typing import Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract

LOAD_REPORT_SIZE_BYTES_MAX = 512 * 1024
"""Of the message."""


class SegmentLoad(Contract):
    """What was appended to a segment within the period and is durable; `size` in bytes."""

    segment: str
    events: int = Field(ge=0)
    size: int = Field(ge=0)


class ContainerLoad(Contract):
    """A container that the store served at the end of the period.

    `segments`: those that were appended to, the largest first. Merges and truncations are no
    load, and transient segments are not told.
    """

    container: int
    container_epoch: int
    segments: tuple[SegmentLoad, ...] = ()


class LoadReport(Contract):
    """One period of one store.

    `session` is drawn anew at each start of the process; `sequence` counts its reports from 1,
    those that could not be sent too. The period began at `start_ms` (Unix time by the store's
    clock). `others_idle`: nothing was appended to segments of these containers that are not
    listed; false when there were too many to list.
    """

    schema_number: Literal[1] = 1
    node_id: str = Field(min_length=1, max_length=64)
    session: str = Field(min_length=1, max_length=64)
    sequence: int = Field(ge=1)
    start_ms: int
    length_ms: int = Field(ge=1)
    containers: tuple[ContainerLoad, ...]
    others_idle: bool
