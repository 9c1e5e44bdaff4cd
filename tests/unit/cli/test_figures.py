"""Sizes and durations around the borders of their units."""

import pytest

from anabranch.cli.figures import duration, size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1011 * 1024, "1011 KiB"),
        (1023.9 * 1024, "1024 KiB"),
        (1.5 * 2**30, "1.5 GiB"),
        (2000 * 2**50, "2000 PiB"),
    ],
)
def test_a_size_has_no_exponent(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0.0471, "0.0471 ms"), (999.4, "999 ms"), (999.7, "1000 ms"), (1000, "1 s"), (59_990, "60 s")],
)
def test_a_duration_has_no_exponent(ms: float, text: str) -> None:
    assert duration(ms) == text
