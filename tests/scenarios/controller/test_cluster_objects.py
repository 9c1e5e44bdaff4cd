"""Text scenarios of SPUs, SPU groups, topics and partitions.

`kit.cluster_story` says how to read them. With ``ANABRANCH_REWRITE=1`` the outcomes are written
anew: read the difference before you keep it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.common.model.objects import (
    PartitionResolution,
    SpuGroupResolution,
    SpuResolution,
    TopicResolution,
)
from kit.cluster_story import ClusterStory

STORIES = sorted((Path(__file__).parent / "cluster").glob("*.txt"))


def blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """(lines to perform, expected outcome) of each block; comments are lines, too."""
    for block in text.strip().split("\n\n"):
        head, _, expected = block.partition("\n----")
        yield head.splitlines(), expected.strip().splitlines()


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_of_the_cluster_goes_as_written(path: Path) -> None:
    story, told = ClusterStory(), []
    for lines, expected in blocks(path.read_text()):
        outcome: list[str] = []
        for line in lines:
            if not line.startswith("#"):
                outcome += story.perform(line)
        told.append("\n".join([*lines, "----", *outcome]) + "\n")
        if not os.environ.get("ANABRANCH_REWRITE"):
            assert outcome == expected, lines
    if os.environ.get("ANABRANCH_REWRITE"):
        path.write_text("\n".join(told))


def test_the_stories_show_every_resolution() -> None:
    text = " ".join(path.read_text() for path in STORIES)
    for resolutions in (SpuResolution, SpuGroupResolution, TopicResolution, PartitionResolution):
        missing = [each for each in resolutions if f" {each}" not in text]
        assert missing == ([TopicResolution.INIT] if resolutions is TopicResolution else []), (
            missing
        )
