"""Minutes of writers that note times: no watermark is ahead of an event of an active writer."""

import pytest

from kit.thorough import some_of
from kit.watermark_scenario import random_watermarks


@pytest.mark.parametrize("seed", some_of([2, 3, 6, 11], 3))
def test_watermarks_of_a_random_life_are_true(seed: int) -> None:
    counts = random_watermarks(seed)

    assert counts["watermarks"]
