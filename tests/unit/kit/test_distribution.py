"""How the tests are spread over the processes of a run."""

import pytest

from kit.distribution import _path_of, group_those_that_share, in_order, mixed


@pytest.fixture(scope="module")
def of_the_module() -> None:
    """Nothing; what counts is its scope."""


def test_two_lists_are_mixed_evenly_and_keep_their_order() -> None:
    assert mixed("ab", "123456") == list("a123b456")
    assert mixed("", "12") == ["1", "2"]


def test_every_test_keeps_a_place_and_units_come_last(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    ordered = in_order(items)
    assert sorted(map(id, ordered)) == sorted(map(id, items))
    assert {_path_of(item).split("/")[1] for item in ordered[-1:]} == {"unit"}


def test_tests_that_share_a_fixture_of_their_module_form_a_group(
    request: pytest.FixtureRequest, of_the_module: None
) -> None:
    group_those_that_share([request.node])
    (marker,) = request.node.iter_markers("xdist_group")
    assert marker.args == ("tests/unit/kit/test_distribution.py",)


def test_a_test_that_shares_nothing_is_in_no_group(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    group_those_that_share([request.node])
    assert request.node.get_closest_marker("xdist_group") is None
