"""Which log a container goes on with."""

import pytest

from anabranch.common.errors import LogNotHere
from anabranch.common.tier2.manifest import LogBinding
from anabranch.segstore.domain.storage.log_choice import LogsHere, choose_log

NONE, EMPTY, FILLED = LogsHere(None, False), LogsHere("here", False), LogsHere("here", True)
OPEN, CLOSED = LogBinding("here"), LogBinding("here", closed=True)
OTHER_OPEN, OTHER_CLOSED = LogBinding("other"), LogBinding("other", closed=True)
NEW = None


@pytest.mark.parametrize(
    ("placed", "here", "newest", "chosen"),
    [
        pytest.param("here", FILLED, None, "here", id="it is here, whatever tier 2 says"),
        pytest.param("here", FILLED, CLOSED, "here", id="closed, but not yet removed"),
        pytest.param("", NONE, None, NEW, id="the first open"),
        pytest.param("", NONE, OTHER_CLOSED, NEW, id="it came from another store"),
        pytest.param("", EMPTY, None, "here", id="died before the first fence manifest"),
        pytest.param("", EMPTY, OPEN, "here", id="died after the fence manifest"),
        pytest.param("", FILLED, OPEN, "here", id="given up, and back before anybody opened it"),
        pytest.param("", FILLED, OTHER_CLOSED, NEW, id="given up, back from another store"),
        pytest.param("", FILLED, OTHER_OPEN, NEW, id="given up, twice"),
        pytest.param("", EMPTY, OTHER_CLOSED, "here", id="its fence may still appear"),
        pytest.param("other", NONE, OTHER_CLOSED, NEW, id="died between removal and release"),
        pytest.param("other", EMPTY, OPEN, "here", id="died while opening again after that"),
        pytest.param("other", EMPTY, OTHER_CLOSED, "here", id="died before that one's fence"),
    ],
)
def test_a_container_goes_on_with(
    placed: str, here: LogsHere, newest: LogBinding | None, chosen: str | None
) -> None:
    assert choose_log(3, placed, here, newest) == chosen


@pytest.mark.parametrize("newest", [None, OTHER_OPEN, LogBinding("third")])
@pytest.mark.parametrize("here", [NONE, EMPTY, FILLED])
def test_a_log_that_is_elsewhere_and_not_closed_is_never_replaced(
    here: LogsHere, newest: LogBinding | None
) -> None:
    with pytest.raises(LogNotHere):
        choose_log(3, "other", here, newest)


FOUND, LACKING = LogsHere("here", False, listing=False), LogsHere(None, False, listing=False)


@pytest.mark.parametrize(
    ("placed", "here", "newest", "chosen"),
    [
        pytest.param("", LACKING, None, NEW, id="the first open"),
        pytest.param("here", FOUND, OPEN, "here", id="any store continues it"),
        pytest.param("here", FOUND, None, "here", id="tier 2 is lost, which its open reports"),
        pytest.param("", FOUND, OPEN, "here", id="died after the fence manifest"),
        pytest.param("here", FOUND, CLOSED, "here", id="closed, but not yet released"),
        pytest.param("", FOUND, CLOSED, NEW, id="released, so it may be deleted at any time"),
        pytest.param("", LACKING, OTHER_CLOSED, NEW, id="it came from a journal"),
        pytest.param("other", FOUND, OPEN, "here", id="a new log, before it was reported"),
        pytest.param("other", LACKING, OTHER_CLOSED, NEW, id="closed and deleted"),
        pytest.param("", LACKING, OTHER_OPEN, NEW, id="given up; tier 2 judges whether it may be"),
    ],
)
def test_on_shared_servers_a_container_goes_on_with(
    placed: str, here: LogsHere, newest: LogBinding | None, chosen: str | None
) -> None:
    assert choose_log(3, placed, here, newest) == chosen


@pytest.mark.parametrize("newest", [None, OTHER_OPEN])
def test_a_missing_stream_is_never_replaced(newest: LogBinding | None) -> None:
    with pytest.raises(LogNotHere, match="NATS servers"):
        choose_log(3, "other", LACKING, newest)
