"""Single keys from a pseudo-terminal."""

import asyncio
import os
import termios
from collections.abc import Iterator

import pytest

from anabranch.cli.top.keys import KEYS_WAITING_MAX, pressed_keys
from kit.client_bench import until


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The ends of the terminal and of the program."""
    ours, theirs = os.openpty()
    yield ours, theirs
    for descriptor in (ours, theirs):
        try:
            os.close(descriptor)
        except OSError:
            continue  # the test hung up


async def test_keys_come_one_by_one_without_enter_and_the_terminal_is_as_before(
    terminal: tuple[int, int],
) -> None:
    ours, theirs = terminal
    before = termios.tcgetattr(theirs)
    with pressed_keys(theirs) as keys:
        assert not termios.tcgetattr(theirs)[3] & termios.ICANON
        os.write(ours, b"sg")
        async with asyncio.timeout(10):
            assert [await keys.get(), await keys.get()] == ["s", "g"]

    assert termios.tcgetattr(theirs) == before


@pytest.mark.parametrize("typed", [b"", b"x" * KEYS_WAITING_MAX])
async def test_a_terminal_that_hangs_up_quits(terminal: tuple[int, int], typed: bytes) -> None:
    ours, theirs = terminal
    with pressed_keys(theirs) as keys:
        if typed:
            os.write(ours, typed)
            await until(keys.full)
        os.close(ours)
        async with asyncio.timeout(10):
            while await keys.get() != "q":
                assert typed


async def test_keys_that_nothing_waits_for_are_bounded(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    with pressed_keys(theirs) as keys:
        os.write(ours, b"x" * 3 * KEYS_WAITING_MAX)
        await until(keys.full)
        await asyncio.sleep(0)

        assert keys.qsize() == KEYS_WAITING_MAX
