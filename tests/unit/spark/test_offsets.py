"""Offsets of streaming queries as texts: canonical, short, and refused if unknown."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import segment_id, stream_ref
from anabranch.spark.following.offsets import Point, parse_offset, point_of, to_json

FLIGHTS = stream_ref("demo/flights")

segments = st.builds(segment_id, st.integers(0, 3), st.integers(0, 12))
places = st.one_of(
    st.tuples(st.integers(0, 5), st.just(0)),
    st.tuples(st.integers(0, 2**40), st.integers(0, 3)),
    st.just((-1, 0)),
)


def point(incarnation: int, *places: tuple[int, int, int, int]) -> Point:
    """(number, epoch, offset, index) of each segment."""
    found = ((segment_id(epoch, number), at, index) for number, epoch, at, index in places)
    return point_of(incarnation, found)


def test_a_cut_is_written_as_the_documentation_shows_it() -> None:
    cut = point(41, (4, 1, 77, 0), *((number, 0, 0, 0) for number in range(3)), (3, 0, 1048576, 0))
    assert to_json({FLIGHTS: cut}) == {"demo/flights": "41@ 0-2:0 3:1048576 4.1:77"}


@given(st.integers(0, 2**62), st.dictionaries(segments, places, max_size=20))
def test_what_was_written_is_read_back(incarnation: int, cut: dict[int, tuple[int, int]]) -> None:
    offset = {FLIGHTS: point_of(incarnation, ((number, *at) for number, at in cut.items()))}
    assert parse_offset(json.loads(json.dumps(to_json(offset)))) == offset


def test_a_thousand_segments_at_one_place_make_a_short_text() -> None:
    cut = point(1, *((number, 0, 0, 0) for number in range(1000)))
    assert to_json({FLIGHTS: cut}) == {"demo/flights": "1@ 0-999:0"}


def test_streams_are_written_in_one_order() -> None:
    other = stream_ref("demo/airports")
    one, two = point(1, (0, 0, 5, 0)), point(2, (0, 0, 6, 0))
    written = [to_json({FLIGHTS: one, other: two}), to_json({other: two, FLIGHTS: one})]
    assert list(written[0].items()) == list(written[1].items())


@pytest.mark.parametrize(
    "found",
    [
        {"demo/flights": "41"},
        {"demo/flights": "41@ 0:5:2"},
        {"demo/flights": "41@ 0:05"},
        {"demo/flights": "41@ 0:1 1:1"},
        {"demo/flights": "41@ 1:1 0:2"},
        {"demo/flights": "41@ 0:1 0:2"},
        {"demo/flights": "41@  0:1"},
        {"demo/flights": "41@ 0-5000000000:0"},
        {"demo/flights": "41@ 0:-1+1"},
        {"demo/flights": "2:41@ 0:1"},
        {"demo/flights": 41},
        {"format": "41@ 0:1"},
        {"demo/b": "1@ 0:1", "demo/a": "1@ 0:1"},
    ],
)
def test_an_unknown_form_is_refused_with_a_remedy(found: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="does not understand") as refused:
        parse_offset(found)
    assert "update anabranch-spark" in refused.value.remedy
