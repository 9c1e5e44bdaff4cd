"""Writing with real Spark, while tasks, commits and drivers fail: no event twice, none missing.

One driver runs on two executors in processes of their own, with speculation on; each test has a
stream of its own, which it reads back with the client. A fault strikes once: see
`kit.spark_sink.faults`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch.client import Client
from kit.cluster_thread import ClusterThread
from kit.spark_sink.calls import DriverProcess, driver_process
from kit.spark_sink.faults import FORMAT, fault_options

pytestmark = pytest.mark.xdist_group("spark")
SCOPE = "sink"
TWO_EXECUTORS = "local-cluster[2,1,600]"
ONE_PROCESS = "local[2,4]"

FILES = 2
ROWS = 120
FAULTS_OF_TASKS = (
    "raise before",
    "exit before",
    "raise in the middle",
    "exit in the middle",
    "exit in flush",
    "raise after flush",
    "exit after flush",
    "hang after flush",
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverProcess]:
    with driver_process(tmp_path_factory.mktemp("driver"), TWO_EXECUTORS) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(running: ClusterThread) -> ClusterThread:
    running.run(lambda client: client.scopes.create(SCOPE))
    return running


@dataclass
class Case:
    """A test's stream, files and checkpoint, and the driver that writes."""

    cluster: ClusterThread
    driver: DriverProcess
    directory: Path
    stream: str

    @property
    def input(self) -> Path:
        return self.directory / "input"

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def add_file(self, number: int) -> None:
        """A file of rows, which becomes one micro-batch."""
        self.input.mkdir(exist_ok=True)
        rows = range(number * ROWS, (number + 1) * ROWS)
        part = self.directory / f"{number}.part"
        part.write_text("".join(f"{row}\n" for row in rows))
        part.rename(self.input / f"{number}.txt")

    def request(self, fault: str = "", **changes: Any) -> dict[str, Any]:
        """A request for a query over the files, or for a batch of as many rows."""
        options = {"nats_url": self.cluster.nats_url, **changes.pop("options", {})}
        if fault:
            options |= fault_options(self.directory / fault.replace(" ", "-"), fault)
        return {
            "do": "query", "format": FORMAT, "stream": self.stream, "input": str(self.input),
            "checkpoint": str(self.checkpoint), "options": options, "first": 0,
            "count": FILES * ROWS, "tag": "f", **changes,
        }  # fmt: skip

    def ask(self, fault: str = "", **changes: Any) -> dict[str, Any]:
        return self.driver.ask(**self.request(fault, **changes))

    def gate(self, fault: str) -> Path:
        return self.directory / fault.replace(" ", "-")

    def events(self) -> list[str]:
        """All events of the stream, sorted."""

        async def read(client: Client) -> list[str]:
            async with client.reader(self.stream, until_tail=True) as reader:
                return sorted([bytes(event.payload).decode() async for event in reader])

        return self.cluster.run(read)

    def undo_last_commit(self) -> None:
        """Make the checkpoint that of a driver that died before it noted its last batch."""
        commits = self.checkpoint / "commits"
        last = max((path for path in commits.iterdir() if path.name.isdigit()), key=_number)
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.name)


@pytest.fixture
def case(
    cluster: ClusterThread, driver: DriverProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Case:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name).lower()
    stream = f"{SCOPE}/s{abs(hash(name)) % 10**9}"
    cluster.run(lambda client: client.streams.create(stream, segments=3))
    found = Case(cluster, driver, tmp_path, stream)
    for number in range(FILES):
        found.add_file(number)
    return found


def expected(files: int = FILES) -> list[str]:
    return sorted(f"f-{row}" for row in range(files * ROWS))


# --- tasks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["", *FAULTS_OF_TASKS])
def test_a_query_writes_each_event_once_though_a_task_fails(case: Case, fault: str) -> None:
    assert case.ask(fault)["error"] == ""
    assert case.events() == expected()


@pytest.mark.parametrize("fault", ["", *FAULTS_OF_TASKS])
def test_a_batch_write_writes_each_event_once_though_a_task_fails(case: Case, fault: str) -> None:
    assert case.ask(fault, do="batch")["error"] == ""
    assert case.events() == expected()
