"""Which loop a process gets, and what its transports can do."""

import asyncio
import sys

import pytest

from anabranch.common.runtime.loops import loop_factory, pauses_after_writelines


def test_without_uvloop_a_process_gets_the_loop_of_the_standard_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert loop_factory().__module__.startswith("uvloop")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    monkeypatch.setattr("anabranch.common.runtime.loops.find_spec", lambda _: None)
    assert loop_factory() is asyncio.new_event_loop


class OtherTransport(asyncio.Transport):
    """A transport of another library."""


@pytest.mark.parametrize(
    ("python", "pauses"),
    [
        ((3, 11, 7), True),
        ((3, 12, 1), False),
        ((3, 12, 9), True),
        ((3, 13, 0), False),
        ((3, 13, 2), True),
        ((3, 14, 0), True),
    ],
)
def test_writelines_is_trusted_where_it_pauses_the_protocol(
    python: tuple[int, ...], pauses: bool
) -> None:
    assert pauses_after_writelines(asyncio.Transport(), python) is pauses
    assert pauses_after_writelines(OtherTransport(), python)
