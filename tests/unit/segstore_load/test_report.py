"""The load report of a period: what it says, and that it fits."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.contracts.load import (
    LOAD_REPORT_SIZE_BYTES_MAX,
    ContainerLoad,
    KeySketch,
    LoadReport,
    MergedLoad,
    SegmentLoad,
)
from anabranch.segstore.domain.load.report import (
    SEGMENTS_MAX,
    ContainerTraffic,
    Period,
    encoded,
    load_report,
)
from anabranch.segstore.domain.load.traffic import Counted, SegmentTraffic

PERIOD = Period("a" * 32, "b" * 32, 7, 1_700_000_000_000, 2_000, 10_000)


def traffic(container: int, *segments: SegmentTraffic, complete: bool = True) -> ContainerTraffic:
    return ContainerTraffic(container, 3, Counted(segments, complete))


def size_of(report: LoadReport) -> int:
    return len(encoded(report))


def test_a_report_says_which_period_it_is_of_and_what_was_appended_largest_first() -> None:
    small, large = SegmentTraffic("s/x/0.#epoch.0", 9, 10), SegmentTraffic("s/x/1.#epoch.0", 1, 99)
    report = load_report(PERIOD, [traffic(0, small, large), traffic(2)])
    loads = (
        SegmentLoad(segment="s/x/1.#epoch.0", events=1, size=99),
        SegmentLoad(segment="s/x/0.#epoch.0", events=9, size=10),
    )
    assert report == LoadReport(
        node_id="a" * 32,
        session="b" * 32,
        sequence=7,
        start_ms=1_700_000_000_000,
        length_ms=2_000,
        due_ms=10_000,
        containers=(
            ContainerLoad(container=0, container_epoch=3, segments=loads),
            ContainerLoad(container=2, container_epoch=3),
        ),
        others_idle=True,
    )


def test_what_commits_brought_is_told_with_the_life_of_the_transactions() -> None:
    merged = SegmentTraffic("s/x/0.#epoch.0", 9, 90, 4, 40, 30_000)
    report = load_report(PERIOD, [traffic(0, merged)])
    ((found,),) = (container.segments for container in report.containers)
    assert found.merged == MergedLoad(events=4, size=40, over_ms=30_000)
    assert b"merged" not in encoded(load_report(PERIOD, [traffic(0, SegmentTraffic("a", 1, 2))]))


def test_a_container_that_could_not_count_all_is_not_said_to_be_idle_elsewhere() -> None:
    assert not load_report(PERIOD, [traffic(0), traffic(1, complete=False)]).others_idle


def test_sketches_take_the_room_that_is_left_and_the_largest_segments_get_it() -> None:
    """No segment is left out for a sketch."""
    keys = KeySketch(positions=tuple(range(50)), events=(7,) * 50, sizes=(1000,) * 50)
    many = [SegmentTraffic(f"s/x/{number}", 9, number, keys=keys) for number in range(20)]
    size_max = size_of(load_report(PERIOD, [traffic(0)])) + 20 * 60 + 3 * 600
    report = load_report(PERIOD, [traffic(0, *many)], size_max)
    assert size_of(report) <= size_max
    (found,) = report.containers
    told = [one.size for one in found.segments if one.keys is not None]
    assert (len(found.segments), report.others_idle) == (20, True)
    assert 2 <= len(told) < 20
    assert told == list(range(19, 19 - len(told), -1))


NAMES = st.text(min_size=1, max_size=30)
PLACES = st.sampled_from([(), (7,), (2**32,) * 9])
KEYS = st.builds(
    KeySketch, positions=PLACES, events=PLACES, sizes=PLACES, keyless_events=st.integers(0, 2**20)
)
SEGMENT_TRAFFIC = st.builds(
    SegmentTraffic, NAMES, st.integers(0, 2**40), st.integers(0, 2**62),
    st.integers(0, 2**40), st.integers(0, 2**62), st.integers(0, 2**40),
    st.none() | KEYS,
)  # fmt: skip
CONTAINERS = st.lists(st.lists(SEGMENT_TRAFFIC, max_size=12), max_size=4)


@given(CONTAINERS, st.integers(600, 2000))
def test_the_message_fits_whatever_the_names_and_the_largest_are_kept(
    counted: list[list[SegmentTraffic]], size_max: int
) -> None:
    containers = [traffic(place, *found) for place, found in enumerate(counted)]
    report = load_report(PERIOD, containers, size_max)
    assert size_of(report) <= size_max
    listed = [one.size for found in report.containers for one in found.segments]
    told = sorted((one.size for found in counted for one in found), reverse=True)
    assert sorted(listed, reverse=True) == told[: len(listed)]
    assert report.others_idle == (len(listed) == len(told))
    if not report.others_idle:
        longest = max(len(one.segment) for found in counted for one in found)
        entries = (len(listed) + 1) * (80 + 12 * longest)
        assert size_of(load_report(PERIOD, containers, 600)) + entries > size_max, "there was room"


def test_more_segments_than_are_looked_at_still_fit_a_message() -> None:
    many = [
        SegmentTraffic(f"scope/stream/{number}.#epoch.0", number, number)
        for number in range(SEGMENTS_MAX + 100)
    ]
    report = load_report(PERIOD, [traffic(0, *many)])
    (found,) = report.containers
    assert size_of(report) <= LOAD_REPORT_SIZE_BYTES_MAX
    assert 4000 < len(found.segments) <= SEGMENTS_MAX
    assert found.segments[0].size == SEGMENTS_MAX + 99
    assert not report.others_idle
