"""Minutes of writers that note times: no watermark is ahead of an event of an active writer."""

import pytest

from kit.watermark_scenario import random_watermarks


@pytest.mark.parametrize("seed", [2, 3, 6, 11])
def test_watermarks_of_a_random_life_are_true(seed: int) -> None:
    counts = random_watermarks(seed)

    assert counts["watermarks"]
