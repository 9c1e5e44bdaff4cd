"""Names, ids, ranges and the three hashes that decide where data lives."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import ERRORS_BY_CODE, AnabranchError, InvalidName, from_body
from anabranch.common.model.hashing import container_of, routing_position, shard_of
from anabranch.common.model.key_range import KeyRange, even_ranges
from anabranch.common.model.names import (
    epoch_of,
    number_of,
    parse_segment_name,
    refuse_dots,
    scope_name,
    segment_id,
    segment_name,
    stream_ref,
    transient_name,
    transient_parent,
)
from anabranch.common.model.stream import StreamConfig

ROUTING_VECTORS = {
    "": 0.24117842791623523,
    "hello": 0.658716230571337,
    "a": 0.9433912753816884,
    "key1": 0.6927653144825257,
    "key2": 0.596180323189972,
    "sensor-1": 0.4165325758095675,
    "0": 0.8056356837424186,
    "1": 0.36758584297933905,
    "2": 0.2800319060521743,
    "3": 0.5604074966909074,
    "é": 0.6688272069632242,
    "日本": 0.34924442974855974,
}


@pytest.mark.parametrize(("key", "position"), ROUTING_VECTORS.items())
def test_keys_route_as_the_java_client_routes_them(key: str, position: float) -> None:
    assert routing_position(key) == position


@pytest.mark.parametrize(
    ("name", "containers"),
    [("scope/stream/0", (3, 3, 3)), ("scope/stream/1", (3, 5, 15)), ("test/test/0", (3, 5, 5))],
)
def test_segments_map_to_containers_as_in_pravega(name: str, containers: tuple[int, ...]) -> None:
    for suffix in ("", ".#epoch.3", ".#epoch.3#transaction.00ff", "#transient.w1"):
        assert tuple(container_of(name + suffix, n) for n in (4, 8, 16)) == containers


def test_shards_are_frozen() -> None:
    assert [shard_of(name) for name in ("scope", "scope/stream", "demo/flights")] == [
        8, 3, 9,
    ]  # fmt: skip


@given(st.integers(1, 1000))
def test_even_ranges_cover_the_key_space_exactly(count: int) -> None:
    ranges = even_ranges(count)
    assert ranges[0].start == 0.0
    assert ranges[-1].end == 1.0
    assert all(left.end == right.start for left, right in itertools.pairwise(ranges))


def test_a_range_is_half_open() -> None:
    keys = KeyRange(0.25, 0.5)
    assert 0.25 in keys
    assert 0.5 not in keys


@pytest.mark.parametrize(("start", "end"), [(0.5, 0.5), (0.6, 0.5), (-0.1, 0.5), (0.5, 1.1)])
def test_a_range_outside_the_key_space_cannot_be_built(start: float, end: float) -> None:
    with pytest.raises(ValueError, match="key range"):
        KeyRange(start, end)


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_a_segment_name_and_its_id_tell_the_same(epoch: int, number: int) -> None:
    segment = segment_id(epoch, number)
    assert (epoch_of(segment), number_of(segment)) == (epoch, number)
    stream = stream_ref("my.scope/a-stream")
    assert parse_segment_name(segment_name(stream, segment)) == (stream, segment)


def test_ids_sort_by_epoch_then_number() -> None:
    assert segment_id(1, 0) > segment_id(0, 2**31 - 1)


@pytest.mark.parametrize("bad", ["", "a b", "a/b", "_x", "ä", "x" * 256, "a\n", "a_b"])
def test_bad_names_are_refused_with_a_remedy(bad: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        scope_name(bad)
    assert refusal.value.remedy.startswith("use ")


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_paths_take_away_is_read_but_not_given(name: str) -> None:
    assert scope_name(name) == name
    with pytest.raises(InvalidName):
        refuse_dots(name)
    refuse_dots(name + "a")
    refuse_dots("...")


def test_a_tag_counts_once_where_it_came_first() -> None:
    config = StreamConfig(tags=("b", "a", "b", *["a"] * 200))

    assert config.tags == ("b", "a")
    assert config == StreamConfig(tags=("b", "a"))


def test_every_error_has_a_code_of_its_own_and_survives_the_wire() -> None:
    def count(kind: type[AnabranchError]) -> int:
        return 1 + sum(count(child) for child in kind.__subclasses__())

    assert len(ERRORS_BY_CODE) == count(AnabranchError)
    for kind in ERRORS_BY_CODE.values():
        copy = from_body(kind("something", detail=1).to_body())
        assert type(copy) is kind
        assert copy.fields == {"detail": 1}


@pytest.mark.parametrize("number", [str(2**31), "9" * 5000])
@pytest.mark.parametrize("form", ["s/x/{}.#epoch.0", "s/x/0.#epoch.{}", "s/x/{}"])
def test_a_number_that_no_segment_can_have_is_refused_by_name(form: str, number: str) -> None:
    with pytest.raises(InvalidName):
        parse_segment_name(form.format(number))


def test_a_transient_segment_tells_its_parent_and_lives_in_its_container() -> None:
    parent = "scope/stream/3.#epoch.7"
    name = transient_name(parent, bytes(range(16)))
    assert name == f"{parent}#transient.000102030405060708090a0b0c0d0e0f"
    assert transient_parent(name) == parent
    assert all(container_of(name, n) == container_of(parent, n) for n in (1, 4, 16, 1000))


@pytest.mark.parametrize(
    "name",
    ["scope/stream/3.#epoch.7", "a/b/0#transient.00ff", f"a#transient.{'0' * 32}/b/0"],
)
def test_other_names_are_of_no_transient_segment(name: str) -> None:
    assert transient_parent(name) is None
