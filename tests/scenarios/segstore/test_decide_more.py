"""What a container decides of truncations, merges, attributes and conditions, as tables."""

import pytest

from anabranch.common.errors import AnabranchError
from anabranch.common.tier2.state import MergedInto, SegmentState, Tombstone
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    NO_DECISION,
    AttributeUpdate,
    ConditionalAppend,
    MergedSegment,
    SegmentsMerged,
    Stamp,
    TruncateSegment,
    UpdateAttributes,
    UpdateKind,
    encode_message,
)
from anabranch.segstore.domain.container.decide import (
    Known,
    decide_append,
    decide_attributes,
    decide_create,
    decide_delete,
    decide_seal,
    decide_setup,
    decide_truncate,
)
from anabranch.segstore.domain.container.evolve import evolve
from anabranch.segstore.domain.container.merge import MergeDecision, decide_merge
from anabranch.segstore.domain.container.operations import AttributesOperation, TruncateOperation

NAME, SOURCE, OTHER = (f"scope/stream/{number}.#epoch.0" for number in range(3))
CLIENT = bytes(16)
ID = b"an attribute id."

KNOWN: dict[str, Known] = {
    "nothing": None,
    "open@2": SegmentState(NAME, 1, Stamp(1, 2), 40, 100, 9),
    "sealed@2": SegmentState(NAME, 1, Stamp(1, 2), 40, 100, 9, sealed=True),
    "gone@2": Tombstone(NAME, Stamp(1, 2), 5, 0),
    "merged@2": Tombstone(NAME, Stamp(1, 2), 5, 0, MergedInto(OTHER, 7, 11, 100)),
}

# The segment starts at 40 and has 100 bytes; its append boundaries are the multiples of 20.
TRUNCATIONS = """
known     request  outcome
nothing   60@1     segment-not-found
gone@2    60@1     stale-request
gone@2    60@2     segment-not-found
merged@2  60@2     segment-merged
open@2    60@1     stale-request
open@2    60@2     truncate_to_60
open@2    60@3     truncate_to_60
open@2    100@2    truncate_to_100
open@2    40@2     no_change
open@2    20@2     no_change
open@2    33@2     no_change
open@2    20@3     truncate_to_40
open@2    61@2     not-at-boundary
open@2    61@1     stale-request
open@2    101@2    invalid-request
sealed@2  60@2     truncate_to_60
sealed@2  100@3    truncate_to_100
"""

OTHERS = """
known     request     outcome
merged@2  create@2    stale-request
merged@2  create@3    CreateOperation
merged@2  seal@2      segment-merged
merged@2  delete@2    NoChange
merged@2  delete@3    DeleteOperation
merged@2  setup@2     outcome-unknown
"""

# The target has 100 bytes and stamp 2, each source 30 bytes and stamp 2.
MERGES = """
target    sources           stamp  outcome
open@2    sealed            1      stale-request
open@2    sealed            2      100+30
open@2    sealed            3      100+30
open@2    sealed,sealed     2      100+30,130+30
open@2    sealed,merged     2      100+30,11+30
open@2    merged            2      11+30_unlogged
open@2    merged            3      11+30
open@2    sealed@5          3      stale-request
open@2    open              2      segment-not-sealed
open@2    sealed,open       2      segment-not-sealed
open@2    truncated         2      segment-truncated
open@2    nothing           2      segment-not-found
open@2    gone              2      segment-not-found
open@2    elsewhere         2      segment-merged
open@2    earlier           2      segment-merged
open@2    -                 2      invalid-request
sealed@2  sealed            2      segment-sealed
sealed@2  merged            2      11+30_unlogged
nothing   sealed            2      segment-not-found
gone@2    sealed            2      segment-not-found
merged@2  sealed            2      segment-merged
"""

UPDATES = """
known     last  request  outcome
nothing   0     1@2      segment-not-found
merged@2  0     1@2      segment-merged
open@2    0     1@1      stale-request
open@2    0     1@2      AttributesOperation
open@2    0     2@2      writer-expired
open@2    4     5@2      AttributesOperation
open@2    4     4@2      Duplicate
open@2    4     6@2      event-gap
open@2    0     0@2      invalid-request
sealed@2  0     1@2      AttributesOperation
"""

# The attribute is 5, the segment 100 bytes long, the writer's last event number 3.
CONDITIONS = """
first  expected  update               outcome
4      100       -                    AppendOperation
4      any       replace-if-equals:5  AppendOperation
4      99        -                    offset-mismatch
4      101       replace-if-equals:5  offset-mismatch
4      100       replace-if-equals:4  attribute-mismatch
4      100       create:              attribute-mismatch
3      99        replace-if-equals:4  Duplicate
5      99        -                    event-gap
"""


def rows(table: str) -> list[tuple[str, ...]]:
    return [tuple(line.split()) for line in table.strip().splitlines()[1:]]


def code_or(decide: object, *arguments: object) -> object:
    """What is decided, or the rejection's code."""
    try:
        return decide(*arguments)  # type: ignore[operator]
    except AnabranchError as error:
        return error.code


@pytest.mark.parametrize(("known", "request_text", "outcome"), rows(TRUNCATIONS))
def test_a_truncation_is_monotone_and_at_a_boundary(
    known: str, request_text: str, outcome: str
) -> None:
    offset, revision = map(int, request_text.split("@"))
    request = TruncateSegment(segment=NAME, stamp=Stamp(1, revision), offset=offset)
    decided = code_or(decide_truncate, KNOWN[known], request, offset // 20 * 20, 0)
    if isinstance(decided, TruncateOperation):
        after = evolve(KNOWN[known], 9, decided)
        assert isinstance(after, SegmentState)
        assert (after.start, after.stamp) == (decided.offset, Stamp(1, revision))
        decided = f"truncate_to_{decided.offset}"
    assert decided == outcome or (outcome == "no_change" and type(decided).__name__ == "NoChange")


def test_the_refusal_within_an_append_names_the_lower_boundary() -> None:
    request = TruncateSegment(segment=NAME, stamp=Stamp(1, 2), offset=79)
    with pytest.raises(AnabranchError) as refused:
        decide_truncate(KNOWN["open@2"], request, 60, 0)
    assert refused.value.fields["lower"] == 60


@pytest.mark.parametrize(("known", "request_text", "outcome"), rows(OTHERS))
def test_a_merged_segment_is_gone_and_says_where_its_bytes_are(
    known: str, request_text: str, outcome: str
) -> None:
    verb, _, revision = request_text.partition("@")
    state = KNOWN[known]
    stamp = Stamp(1, int(revision))
    decide = {"create": decide_create, "seal": decide_seal, "delete": decide_delete}
    if verb == "setup":
        decided = code_or(decide_setup, state, NAME, CLIENT)
    else:
        decided = code_or(decide[verb], state, NAME, stamp, 0)
    assert outcome in (decided, type(decided).__name__)


def test_a_client_changes_attributes_by_no_decision_and_leaves_the_stamp_as_it_is() -> None:
    before = KNOWN["open@2"]
    assert isinstance(before, SegmentState)
    assert before.stamp > NO_DECISION
    request = UpdateAttributes(
        segment=NAME,
        stamp=NO_DECISION,
        client_id=CLIENT,
        request_number=1,
        updates=(AttributeUpdate(ID, "replace", 7),),
    )
    operation = decide_attributes(before, 0, request, 0)
    assert isinstance(operation, AttributesOperation)
    after = evolve(before, 9, operation)
    assert isinstance(after, SegmentState)
    assert (after.attributes, after.stamp) == ({ID: 7}, before.stamp)


def source(kind: str, name: str) -> Known:
    kind, _, revision = kind.partition("@")
    stamp = Stamp(1, int(revision or 2))
    number = int(name.split("/")[2][0]) + 50
    match kind:
        case "open" | "sealed" | "truncated":
            start = 10 if kind == "truncated" else 0
            return SegmentState(name, number, stamp, start, 30, 3, sealed=kind != "open")
        case "merged":
            return Tombstone(name, stamp, 8, 0, MergedInto(NAME, 1, 11, 30))
        case "elsewhere":
            return Tombstone(name, stamp, 8, 0, MergedInto("scope/stream/9.#epoch.0", 1, 11, 30))
        case "earlier":
            return Tombstone(name, stamp, 8, 0, MergedInto(NAME, 0, 11, 30))
        case "gone":
            return Tombstone(name, stamp, 8, 0)
    return None


@pytest.mark.parametrize(("target", "sources", "revision", "outcome"), rows(MERGES))
def test_a_merge_is_decided_for_all_sources_or_none(
    target: str, sources: str, revision: str, outcome: str
) -> None:
    names = (SOURCE, OTHER)
    kinds = [] if sources == "-" else sources.split(",")
    known = {NAME: KNOWN[target]}
    known |= {name: source(kind, name) for name, kind in zip(names, kinds, strict=False)}
    decided = code_or(
        decide_merge, known.get, NAME, names[: len(kinds)], Stamp(1, int(revision)), 0
    )
    if not isinstance(decided, str):
        places = decided.merged  # type: ignore[attr-defined]
        logged = decided.operation is not None  # type: ignore[attr-defined]
        decided = ",".join(f"{place.offset}+{place.length}" for place in places)
        decided += "" if logged else "_unlogged"
    assert decided == outcome


def test_a_segment_is_merged_once_and_not_into_itself() -> None:
    known = {NAME: KNOWN["open@2"], SOURCE: source("sealed", SOURCE)}
    for sources in ((NAME,), (SOURCE, SOURCE), (SOURCE, NAME)):
        decided = code_or(decide_merge, known.get, NAME, sources, Stamp(1, 2), 0)
        assert decided == "invalid-request"


def test_a_merge_whose_answer_would_not_fit_in_a_packet_is_refused() -> None:
    def merged(count: int) -> object:
        names = tuple(f"scope/stream/{number:0100d}.#epoch.0" for number in range(count))
        known = {name: SegmentState(name, 7, Stamp(1, 1), length=2**62 // 1000, sealed=True)
                 for name in names}  # fmt: skip
        known[NAME] = SegmentState(NAME, 1, Stamp(1, 1))
        return code_or(decide_merge, known.get, NAME, names, Stamp(1, 2), 0)

    fits = merged(330)
    assert isinstance(fits, MergeDecision)
    assert encode_message(SegmentsMerged(merged=fits.merged), 1)
    assert merged(900) == "invalid-request"


def test_a_repeated_merge_is_answered_as_the_first_was() -> None:
    known = {NAME: KNOWN["open@2"], SOURCE: source("merged", SOURCE)}
    decided = decide_merge(known.get, NAME, (SOURCE,), Stamp(1, 2), 0)
    assert decided.merged == (MergedSegment(SOURCE, 11, 30),)


@pytest.mark.parametrize(("known", "last", "request_text", "outcome"), rows(UPDATES))
def test_an_update_of_attributes_is_recognised_by_its_number(
    known: str, last: str, request_text: str, outcome: str
) -> None:
    number, revision = map(int, request_text.split("@"))
    # a condition that never holds: a repeat is recognised all the same
    kind: UpdateKind = "create" if outcome == "AttributesOperation" else "replace-if-equals"
    request = UpdateAttributes(
        segment=NAME,
        stamp=Stamp(1, revision),
        client_id=CLIENT,
        request_number=number,
        updates=(AttributeUpdate(ID, kind, 1, 99),),
    )
    decided = code_or(decide_attributes, KNOWN[known], int(last), request, 0)
    if isinstance(decided, AttributesOperation):
        after = evolve(KNOWN[known], 9, decided)
        assert isinstance(after, SegmentState)
        assert after.attributes == {ID: 1}
    assert outcome in (decided, type(decided).__name__)


@pytest.mark.parametrize(("first", "expected", "update", "outcome"), rows(CONDITIONS))
def test_conditions_are_looked_at_after_the_number(
    first: str, expected: str, update: str, outcome: str
) -> None:
    state = SegmentState(NAME, 1, Stamp(1, 2), 40, 100, 9, attributes={ID: 5})
    kind, _, value = update.partition(":")
    updates = () if update == "-" else (AttributeUpdate(ID, kind, 6, int(value or 0)),)  # type: ignore[arg-type]
    block = encode_block(
        [b"e"], writer_id=CLIENT, first_event_number=int(first), base_timestamp_ms=0
    )
    request = ConditionalAppend(
        segment=NAME,
        writer_id=CLIENT,
        first_event_number=int(first),
        count=1,
        expected_length=None if expected == "any" else int(expected),
        updates=updates,
    )
    try:
        decided = type(decide_append(state, 3, CLIENT, request, block, now_ms=0)).__name__
    except AnabranchError as error:
        decided = error.code
    assert decided == outcome


def test_an_offset_mismatch_names_the_present_length() -> None:
    state = SegmentState(NAME, 1, Stamp(1, 2), 40, 100, 9)
    block = encode_block([b"e"], writer_id=CLIENT, first_event_number=1, base_timestamp_ms=0)
    request = ConditionalAppend(
        segment=NAME, writer_id=CLIENT, first_event_number=1, count=1, expected_length=40
    )
    with pytest.raises(AnabranchError) as refused:
        decide_append(state, 0, CLIENT, request, block, now_ms=0)
    assert (refused.value.code, refused.value.fields["length"]) == ("offset-mismatch", 100)
