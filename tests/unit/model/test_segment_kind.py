"""The kind of a segment, as its name tells it."""

import pytest

from anabranch.common.model.names import (
    SegmentKind,
    segment_kind,
    transaction_segment_name,
    transient_name,
)

PARENT = "scope/stream/0.#epoch.0"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (PARENT, SegmentKind.STREAM),
        ("scope/_RGgroup/0.#epoch.0", SegmentKind.STREAM),
        ("scope/_TABLEstock/0.#epoch.0", SegmentKind.TABLE),
        (transaction_segment_name(PARENT, "0a" * 16), SegmentKind.TRANSACTION),
        (transaction_segment_name(PARENT, "0a" * 16, "0b" * 16), SegmentKind.TRANSACTION),
        (transient_name(PARENT, bytes(16)), SegmentKind.TRANSIENT),
    ],
)
def test_a_name_tells_the_kind(name: str, kind: SegmentKind) -> None:
    assert segment_kind(name) is kind


def test_the_numbers_of_kinds_are_frozen() -> None:
    assert {kind.name: kind.value for kind in SegmentKind} == {
        "STREAM": 0, "TRANSACTION": 1, "TRANSIENT": 2, "TABLE": 3,
    }  # fmt: skip
