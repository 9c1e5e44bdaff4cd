"""What a container decides of transaction segments, as tables."""

from collections.abc import Callable

import pytest

from anabranch.common.contracts.segment_requests import MERGE_NAMES_SIZE_BYTES_MAX
from anabranch.common.errors import AnabranchError, InvalidRequest
from anabranch.common.model.names import segment_kind, transaction_segment_name
from anabranch.common.tier2.state import MergedInto, SegmentState, Tombstone
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.container.decide import Known, decide_create, decide_delete
from anabranch.segstore.domain.container.merge import MergeDecision, decide_merge

PARENT, DUPLICATE = "scope/stream/3.#epoch.1", "scope/stream/3.#epoch.7"
IDS = ["0a" * 16, "0b" * 16]
SOURCES = [transaction_segment_name(PARENT, IDS[0]), transaction_segment_name(PARENT, *IDS)]
CREATED, ABORTED = Stamp(1, 1), Stamp(1, 2)

# The target has 100 bytes, each source 30 and the stamp of its creation. A place that is 100+0 is
# that of a source which is forgotten.
MERGES = """
target    sources                 revision  outcome
open@3    open                    4         100+30
open@4    open                    4         100+30
open@3    sealed                  4         100+30
open@3    open,open               4         100+30,130+30
open@4    merged                  4         11+30_unlogged
open@3    merged                  4         11+30
open@4    merged,open             4         11+30,100+30
open@5    open                    4         stale-request
open@3    aborted                 4         segment-not-found
open@3    open,aborted            4         segment-not-found
open@3    truncated               4         segment-truncated
open@3    unknown                 4         segment-not-found
open@4    unknown                 4         100+0_unlogged
open@4    unknown,unknown         4         100+0,100+0_unlogged
open@4    unknown,merged          4         100+0,11+30_unlogged
open@5    unknown                 4         stale-request
sealed@3  open                    4         segment-sealed
sealed@4  merged                  4         11+30_unlogged
sealed@4  merged,unknown          4         11+30,100+0_unlogged
sealed@4  merged,open             4         segment-sealed
sealed@3  unknown                 4         segment-not-found
unknown   open                    4         segment-not-found
"""

TARGETS = """
target                        outcome
scope/stream/3.#epoch.1       merged
scope/stream/3.#epoch.7       merged
scope/stream/3.#epoch.0       merged
scope/stream/4.#epoch.1       invalid-request
scope/other/3.#epoch.1        invalid-request
other/stream/3.#epoch.1       invalid-request
"""

# An abort deletes at revision 2, a commit merges at 4 or above; the request may come late.
LATE = """
known        request   outcome
unknown      create@1  CreateOperation
open         create@1  NoChange
aborted      create@1  stale-request
merged       create@1  stale-request
unknown      delete@2  DeleteOperation
open         delete@2  DeleteOperation
aborted      delete@2  NoChange
merged       delete@2  stale-request
"""


def rows(table: str) -> list[tuple[str, ...]]:
    return [tuple(line.split()) for line in table.strip().splitlines()[1:]]


def code_or(decide: Callable[[], object]) -> object:
    """What is decided, or the rejection's code."""
    try:
        return decide()
    except AnabranchError as error:
        return error.code


def known_as(text: str, name: str, number: int, length: int) -> Known:
    kind, _, revision = text.partition("@")
    stamp = Stamp(1, int(revision or 1))
    merged = MergedInto(PARENT, 1, 11, 30)
    match kind:
        case "open" | "sealed" | "truncated":
            start = 10 if kind == "truncated" else 0
            return SegmentState(
                name, number, stamp, start, length, 3,
                sealed=kind == "sealed", kind=segment_kind(name),
            )  # fmt: skip
        case "merged":
            return Tombstone(name, Stamp(1, 4), 8, 0, merged)
        case "aborted":
            return Tombstone(name, ABORTED, 8, 0)
        case _:
            return None


@pytest.mark.parametrize(("target", "sources", "revision", "outcome"), rows(MERGES))
def test_a_merge_seals_the_transactions_segments_and_may_be_repeated_for_ever(
    target: str, sources: str, revision: str, outcome: str
) -> None:
    kinds = sources.split(",")
    known = {PARENT: known_as(target, PARENT, 1, 100)}
    known |= {
        name: known_as(kind, name, number, 30)
        for number, (name, kind) in enumerate(zip(SOURCES, kinds, strict=False), 50)
    }
    names = tuple(SOURCES[: len(kinds)])
    decided = code_or(lambda: decide_merge(known.get, PARENT, names, Stamp(1, int(revision)), 0))
    if isinstance(decided, MergeDecision):
        places = ",".join(f"{place.offset}+{place.length}" for place in decided.merged)
        decided = places + ("" if decided.operation else "_unlogged")
    assert decided == outcome


@pytest.mark.parametrize(("target", "outcome"), rows(TARGETS))
def test_the_target_is_the_parent_or_its_duplicate_of_another_epoch(
    target: str, outcome: str
) -> None:
    known = {target: SegmentState(target, 1, CREATED)}
    known |= {
        name: SegmentState(name, 9, CREATED, 0, 30, kind=segment_kind(name)) for name in SOURCES
    }
    decided = code_or(lambda: decide_merge(known.get, target, tuple(SOURCES), Stamp(1, 4), 0))
    assert ("merged" if isinstance(decided, MergeDecision) else decided) == outcome


def test_segments_of_two_epochs_with_one_number_are_merged_together() -> None:
    names = (SOURCES[0], transaction_segment_name(DUPLICATE, IDS[1]))
    known = {PARENT: SegmentState(PARENT, 1, CREATED)}
    known |= {
        name: SegmentState(name, 9, CREATED, 0, 30, kind=segment_kind(name)) for name in names
    }
    decided = decide_merge(known.get, PARENT, names, Stamp(1, 4), 0)
    assert [place.offset for place in decided.merged] == [0, 30]


@pytest.mark.parametrize(
    ("target", "sources"),
    [
        (SOURCES[0], (SOURCES[1],)),
        (SOURCES[0], (PARENT,)),
        (PARENT, (SOURCES[0], DUPLICATE)),
        (PARENT, (SOURCES[0], f"{PARENT}#transient.{IDS[0]}")),
    ],
)
def test_nothing_is_merged_into_a_transaction_and_nothing_else_with_one(
    target: str, sources: tuple[str, ...]
) -> None:
    known = {
        name: SegmentState(name, 1, CREATED, sealed=True, kind=segment_kind(name))
        for name in sources
    }
    known[target] = SegmentState(target, 2, CREATED, kind=segment_kind(target))
    with pytest.raises(InvalidRequest, match="transaction"):
        decide_merge(known.get, target, sources, Stamp(1, 4), 0)


@pytest.mark.parametrize(("known", "request_text", "outcome"), rows(LATE))
def test_what_comes_late_finds_the_outcome(known: str, request_text: str, outcome: str) -> None:
    verb, _, revision = request_text.partition("@")
    decide = {"create": decide_create, "delete": decide_delete}[verb]
    name = SOURCES[0]
    decided = code_or(
        lambda: decide(known_as(known, name, 9, 30), name, Stamp(1, int(revision)), 0)
    )
    assert outcome in (decided, type(decided).__name__)


def test_a_batch_of_a_hundred_fits_in_one_request() -> None:
    longest = f"{'s' * 100}/{'t' * 100}/{2**31 - 1}.#epoch.{2**31 - 1}"
    assert 100 * len(transaction_segment_name(longest, *IDS)) <= MERGE_NAMES_SIZE_BYTES_MAX
