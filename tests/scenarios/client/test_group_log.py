"""Text scenarios of a reader group's log: given a state, when an entry comes, then what changed.

A file in `groups/` is a story of one group; its lines are those of `kit.group_log_story`, each
with ``----`` and what must come of it. Every entry also keeps the invariants, is the same after it
was stored, and so is the state. With ``ANABRANCH_REWRITE=1`` the outcomes are written anew: read
the difference before you keep it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.group_log_story import GroupLogStory

STORIES = sorted((Path(__file__).parent / "groups").glob("*.txt"))


def blocks(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """(comment lines, line to perform, expected outcome) of each block."""
    for block in text.strip().split("\n\n"):
        head, _, expected = block.partition("\n----\n")
        *comments, line = head.splitlines()
        yield "".join(comment + "\n" for comment in comments), line, expected.splitlines()


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_log_goes_as_written(path: Path) -> None:
    story = GroupLogStory()
    told = []
    for comments, line, expected in blocks(path.read_text()):
        outcome = story.perform(line)
        told.append(f"{comments}{line}\n----\n" + "\n".join(outcome) + "\n")
        if not os.environ.get("ANABRANCH_REWRITE"):
            assert outcome == expected, line
    if os.environ.get("ANABRANCH_REWRITE"):
        path.write_text("\n".join(told))


def test_there_are_stories() -> None:
    assert len(STORIES) >= 8
