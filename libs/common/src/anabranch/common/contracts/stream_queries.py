"""Queries about a stream's epochs, segments and cuts: request/reply as in `queries.py`.

A segment is named by its id. A *cut* is a tuple of `SegmentOffset`, sorted by segment id.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.queries import (
    PAGE_SIZE_MAX,
    PagedQuery,
    Query,
    Question,
    SegmentInStream,
)
from anabranch.common.model.stream import (
    CUT_LENGTH_MAX,
    RetentionPolicy,
    SegmentOffset,
    StreamConfig,
    StreamState,
)


class StreamQuery(Query):
    """The base of queries about one stream. Each raises StreamNotFound, ScopeNotFound."""

    scope: str
    stream: str


class GetStreamConfig(StreamQuery):
    """→ StreamConfigFound."""


class StreamConfigFound(Contract):
    ok: Literal[True] = True
    config: StreamConfig


class SegmentAt(SegmentInStream):
    """A segment and a byte offset in it; -1, as in a cut, if its predecessors come first."""

    offset: int


class CutFound(Contract):
    """Segments that cover all keys once, sorted by `key_start`, each with its offset."""

    ok: Literal[True] = True
    incarnation: int
    stream_epoch: int
    """The epoch of the segments; the highest one if they are of several epochs."""
    segments: tuple[SegmentAt, ...]


class HeadCut(StreamQuery):
    """→ CutFound: the beginning of the stream, which is its truncation point."""


class TailCut(StreamQuery):
    """→ CutFound: the current segments with their lengths in the stores. Raises Unavailable."""


class EpochSegments(StreamQuery):
    """→ CutFound of a stream epoch, all offsets 0. Raises InvalidRequest for an unknown epoch."""

    stream_epoch: int = Field(ge=0)


class SegmentsAtTime(StreamQuery):
    """→ CutFound of the epoch that was current at that time, but not before the head's epoch. The
    offsets are the head's if it is the head's epoch, otherwise 0."""

    time_ms: int = Field(ge=0)


class Successors(StreamQuery):
    """→ SuccessorsFound. Raises SegmentNotFound for an id that the stream never had."""

    segment_id: int


class Successor(SegmentInStream):
    predecessors: tuple[int, ...]
    """Ids of the segments before it; readers start it after they have read all of these fully."""


class SuccessorsFound(Contract):
    """The successors of a segment, sorted by `key_start`.

    `open`: the segment takes appends and has no successors yet. `followed`: it is sealed, or about
    to be, and `successors` come after it. `stream_sealed`: it is the stream's last segment for its
    keys, and stays so.
    """

    ok: Literal[True] = True
    incarnation: int
    status: Literal["open", "followed", "stream_sealed"]
    successors: tuple[Successor, ...] = ()


class DescribeSegment(StreamQuery):
    """→ SegmentDescription. Raises SegmentNotFound for an id that the stream never had."""

    segment_id: int


class SegmentDescription(SegmentInStream):
    """A segment. State `deleted`: it lies before the head cut.

    `sealed_epoch`: the stream epoch that replaced it. `size`: the bytes of a sealed segment.
    `cold_until_ms`: auto-scaling found it cold until this Unix time in milliseconds; None: it did
    not, or no controller knows.
    """

    ok: Literal[True] = True
    state: Literal["active", "sealed", "deleted"]
    """`active` segments take appends; `sealed` ones are read-only; `deleted` ones are gone."""
    stream_epoch: int
    """The stream epoch that created it."""
    sealed_epoch: int | None = None
    size: int | None = None
    cold_until_ms: int | None = None
    container: int = 0
    """The number of the container that serves it."""
    node_id: str = ""
    """The store that the container is placed on; empty: none."""


class CheckCut(StreamQuery):
    """→ CutChecked. An invalid cut is a regular answer, not an error."""

    cut: tuple[SegmentOffset, ...] = Field(max_length=CUT_LENGTH_MAX)


class CutChecked(Contract):
    ok: Literal[True] = True
    valid: bool
    reason: str = ""


class CompareCuts(StreamQuery):
    """→ CutsCompared. Raises InvalidCut."""

    first: tuple[SegmentOffset, ...] = Field(max_length=CUT_LENGTH_MAX)
    second: tuple[SegmentOffset, ...] = Field(max_length=CUT_LENGTH_MAX)


class CutsCompared(Contract):
    """The order of two cuts. `overlaps`: `first` is before `second` for some keys, after it for
    others."""

    ok: Literal[True] = True
    order: Literal["before", "equal", "after", "overlaps"]


class SegmentsBetween(StreamQuery):
    """→ SegmentRunList: the parts of segments between two cuts. Raises InvalidCut.

    An empty `start` means the head, an empty `end` the end of the current segments. `page_size` 0:
    everything in one answer; raises InvalidRequest if that is too large.
    """

    start: tuple[SegmentOffset, ...] = Field(default=(), max_length=CUT_LENGTH_MAX)
    end: tuple[SegmentOffset, ...] = Field(default=(), max_length=CUT_LENGTH_MAX)
    page_token: str = ""
    page_size: int = Field(default=0, ge=0, le=PAGE_SIZE_MAX)


class SegmentRun(SegmentInStream):
    """A part of a segment. `end_offset` None: up to its end, for a sealed segment `size`."""

    start_offset: int
    """The byte offset at which the part begins."""
    end_offset: int | None = None
    size: int | None = None


class SegmentRunList(Contract):
    ok: Literal[True] = True
    segments: tuple[SegmentRun, ...]
    """Sorted by id, so predecessors come before their successors."""
    next_page_token: str = ""


class ListEpochs(PagedQuery):
    """→ EpochList, newest first; a page token is an epoch's number."""

    scope: str
    stream: str


class EpochDescription(Contract):
    """A stream epoch. `splits` and `merges` count the changes from the epoch before.

    `cause` is the reason of its beginning: `create`, `manual` (a scale command), `update` (a new
    scaling policy), `roll` (a batch of transactions of an earlier epoch), `auto-split` or
    `auto-merge` (the scaling policy); later releases add others. A colon and details in words may
    follow. Empty: the controller is of an earlier release.
    """

    stream_epoch: int
    """The number of the epoch, from 0."""
    reference_epoch: int
    """The epoch whose segments these duplicate; otherwise the epoch itself."""
    created_ms: int
    """The Unix time of its beginning in milliseconds."""
    segment_count: int
    """The number of its segments."""
    splits: int
    merges: int
    cause: str = ""


class EpochList(Contract):
    ok: Literal[True] = True
    epochs: tuple[EpochDescription, ...]
    next_page_token: str = ""


class ScalingEvents(PagedQuery):
    """→ ScalingEventList: the epochs begun in [from_ms, to_ms] and the last one before, by time."""

    scope: str
    stream: str
    from_ms: int = Field(ge=0)
    to_ms: int = Field(ge=0)


class ScalingEvent(EpochDescription):
    segments: tuple[SegmentInStream, ...]
    """The segments of the epoch, sorted by `key_start`."""


class ScalingEventList(Contract):
    ok: Literal[True] = True
    events: tuple[ScalingEvent, ...]
    next_page_token: str = ""


class CheckScale(StreamQuery):
    """→ ScaleChecked: whether a scale submitted at that stream epoch has ended. Raises
    InvalidRequest for an epoch above the present one."""

    stream_epoch: int = Field(ge=0)


class ScaleChecked(Contract):
    ok: Literal[True] = True
    status: Literal["in_progress", "done"]
    state: StreamState
    stream_epoch: int
    """The present epoch."""


class GetRetentionPlan(StreamQuery):
    """→ RetentionPlan: a dry run of the retention policy. Raises Unavailable."""


class RetentionHolder(Contract):
    """A subscriber that keeps bytes which lie beyond the policy's minimum."""

    subscriber: str
    """The reader group, ``scope/group``."""
    bytes: int
    """The number of bytes that it has yet to release."""


class RetentionRelease(Contract):
    """A truncation by retention."""

    at_ms: int
    """The Unix time of the decision in milliseconds."""
    bytes: int
    """The bytes that it gave up."""
    rule: str
    """The rule by which they went."""


class RetentionPlan(Contract):
    """A dry run of the retention policy, the facts behind it, and past releases. Times are Unix ms.

    `rule`: something goes by `minimum` (it lies beyond the minimum and no subscriber wants it),
    `consumption` (it lies beyond the minimum and every subscriber has released it; more lies
    beyond the minimum) or `maximum` (it lies beyond the maximum, although a subscriber wants it).
    Nothing goes by `within_minimum`, `held` (by subscribers) or `none` (the stream has no policy).
    """

    ok: Literal[True] = True
    incarnation: int
    """The life of the stream's name that the plan is about."""
    at_ms: int
    """The time of the plan, by the clock of the controller that answers."""
    policy: RetentionPolicy | None = None
    """The policy of the stream; None: it keeps everything."""
    rule: str = "none"
    cut: tuple[SegmentOffset, ...] = ()
    """The cut at which the stream would begin; empty: it begins where it does."""
    freed_bytes: int = 0
    """The bytes before that cut."""
    kept_bytes: int = 0
    """The bytes from there to the newest recorded cut."""
    next_ms: int | None = None
    """By time, if nothing goes now: when something goes if no subscriber moves."""
    next_bytes: int | None = None
    """By size, if nothing goes now: something goes after so many more bytes."""
    holders: tuple[RetentionHolder, ...] = ()
    """The subscribers that keep bytes beyond the minimum, those that keep most first."""
    recorded_cuts: int = 0
    """The number of cuts of the tail that are recorded."""
    oldest_ms: int | None = None
    """The time of the first of them."""
    newest_ms: int | None = None
    """The time of the last of them."""
    releases: tuple[RetentionRelease, ...] = ()
    """The last truncations by retention, newest first."""
    release_count: int = 0
    """The number of truncations by retention since the stream was created."""
    released_bytes: int = 0
    """The bytes that all of them gave up."""
    refused_ms: int | None = None
    """If a store refused the last truncation: its time."""
    refusal: ErrorBody | None = None
    """The reason of the store."""


QUERIES: Mapping[str, Question] = {
    "stream_config": Question(GetStreamConfig, StreamConfigFound),
    "head_cut": Question(HeadCut, CutFound),
    "tail_cut": Question(TailCut, CutFound),
    "epoch_segments": Question(EpochSegments, CutFound),
    "segments_at_time": Question(SegmentsAtTime, CutFound),
    "successors": Question(Successors, SuccessorsFound),
    "describe_segment": Question(DescribeSegment, SegmentDescription),
    "check_cut": Question(CheckCut, CutChecked),
    "compare_cuts": Question(CompareCuts, CutsCompared),
    "segments_between": Question(SegmentsBetween, SegmentRunList),
    "list_epochs": Question(ListEpochs, EpochList),
    "scaling_events": Question(ScalingEvents, ScalingEventList),
    "check_scale": Question(CheckScale, ScaleChecked),
    "retention_plan": Question(GetRetentionPlan, RetentionPlan),
}
"""By name."""
