"""The progress that a pipeline tells to the program that runs it."""

import io
import json
from dataclasses import dataclass

from anabranch.spark.pipelines.progress import Progress, StageCounts, task_counts


@dataclass
class Stage:
    numTasks: int  # noqa: N815
    numCompletedTasks: int  # noqa: N815


class FakeTracker:
    """Spark's tracker with these active stages; None: the stage has ended meanwhile."""

    def __init__(self, *stages: StageCounts | None) -> None:
        self._stages = stages

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        return list(range(len(self._stages)))

    def getStageInfo(self, stageId: int) -> StageCounts | None:  # noqa: N802, N803
        return self._stages[stageId]


def test_tasks_are_those_of_all_active_stages_that_still_exist() -> None:
    assert task_counts(FakeTracker(Stage(8, 3), None, Stage(2, 1))) == (4, 10)
    assert task_counts(FakeTracker()) == (0, 0)


def test_a_phase_is_one_line_of_json() -> None:
    lines = io.StringIO()
    Progress(lines).phase("reading")
    assert json.loads(lines.getvalue()) == {"doing": "reading", "tasks_done": 0, "tasks": 0}


def test_without_a_listener_nothing_is_told() -> None:
    Progress(None).phase("reading")
