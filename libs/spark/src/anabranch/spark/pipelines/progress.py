"""Tells the steps of a pipeline, one JSON object per line, for a program that runs it.

    {"doing": "reading", "tasks_done": 3, "tasks": 8}
    {"said": "batch 7: 1,000 events in 2 files"}

`tasks` counts the tasks of Spark's active stages; 0 if there are none. A thread asks Spark twice a
second. It owns nothing that outlives the block, and ends with it.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from pyspark.sql import SparkSession

POLL_S = 0.5
END_S_MAX = 5.0


class StageCounts(Protocol):
    """The counts of one stage, as Spark names them."""

    numTasks: int  # noqa: N815
    numCompletedTasks: int  # noqa: N815


class Tracker(Protocol):
    """The part of Spark's status tracker that is used here; Spark's own, and a fake."""

    def getActiveStageIds(self) -> list[int]: ...  # noqa: N802

    def getStageInfo(self, stageId: int) -> StageCounts | None: ...  # noqa: N802, N803


class Progress:
    """Owns the name of the present phase. Programs read `lines`; without them, `people` read the
    lines of `say`."""

    def __init__(self, lines: TextIO | None, people: TextIO | None = None) -> None:
        self._lines = lines
        self._people = people
        self._phase = ""
        self._turn = threading.Lock()
        self._ended = threading.Event()

    def phase(self, name: str) -> None:
        """A new phase begins."""
        self._phase = name
        self._tell(0, 0)

    def say(self, text: str) -> None:
        """A step is done: a line for people, or `{"said": text}` for a program."""
        if self._lines is not None:
            self._write(self._lines, json.dumps({"said": text}))
        elif self._people is not None:
            self._write(self._people, text)

    @contextmanager
    def watching(self, session: SparkSession) -> Iterator[None]:
        """Tell about the tasks of the session during the block."""
        if self._lines is None:
            yield
            return
        tracker = session.sparkContext.statusTracker()
        thread = threading.Thread(target=self._watch, args=(tracker,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(END_S_MAX)

    def _watch(self, tracker: Tracker) -> None:
        while not self._ended.wait(POLL_S):
            done, tasks = task_counts(tracker)
            if tasks:
                self._tell(done, tasks)

    def _tell(self, done: int, tasks: int) -> None:
        if self._lines is None:
            return
        told = {"doing": self._phase, "tasks_done": done, "tasks": tasks}
        self._write(self._lines, json.dumps(told))

    def _write(self, to: TextIO, line: str) -> None:
        with self._turn:  # a line of another thread shall not come in between
            to.write(line + "\n")
            to.flush()


def task_counts(tracker: Tracker) -> tuple[int, int]:
    """The completed tasks of the active stages, and all of their tasks."""
    stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]  # one may have ended meanwhile
    return sum(each.numCompletedTasks for each in known), sum(each.numTasks for each in known)
