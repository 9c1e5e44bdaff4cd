"""Writing with real Spark, while tasks, commits and drivers fail: no event twice, none missing.

One driver runs on two executors in processes of their own; each test has a stream of its own, which
it reads back with the client. Spark speculates only on other hosts, so that a fault plays its part:
two attempts of a task write all rows, and Spark gets one report. A fault strikes once: see
`kit.spark_sink.faults`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch.client import Client
from anabranch.common.model.transaction import TransactionState
from kit.cluster_thread import ClusterThread
from kit.spark_sink.calls import DriverProcess, await_file, driver_process
from kit.spark_sink.faults import FORMAT, OPEN, REACHED, TWICE, fault_options

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
    TWICE,
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverProcess]:
    with driver_process(tmp_path_factory.mktemp("driver"), TWO_EXECUTORS) as found:
        yield found


@pytest.fixture(scope="module")
def other_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverProcess]:
    with driver_process(tmp_path_factory.mktemp("other"), ONE_PROCESS) as found:
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

    def open_transactions(self) -> list[str]:
        """The ids of the stream's open transactions."""

        async def found(client: Client) -> list[str]:
            listed = client.transactions(self.stream).list(TransactionState.OPEN)
            return [one.transaction_id async for one in listed]

        return self.cluster.run(found)

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


def struck(case: Case, fault: str) -> bool:
    """Whether the fault happened."""
    return not fault or (case.gate(fault) / fault).exists()


# --- tasks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["", *FAULTS_OF_TASKS])
def test_a_query_writes_each_event_once_though_a_task_fails(case: Case, fault: str) -> None:
    assert case.ask(fault)["error"] == ""
    assert struck(case, fault)
    assert case.events() == expected()


@pytest.mark.parametrize("fault", ["", *FAULTS_OF_TASKS])
def test_a_batch_write_writes_each_event_once_though_a_task_fails(case: Case, fault: str) -> None:
    assert case.ask(fault, do="batch")["error"] == ""
    assert struck(case, fault)
    assert case.events() == expected()


def test_a_retried_task_of_a_direct_write_loses_nothing(case: Case) -> None:
    options = {"exactly_once": "false"}
    assert case.ask("raise after flush", do="batch", options=options)["error"] == ""
    found = case.events()
    assert sorted(set(found)) == expected()
    assert len(found) > len(expected())  # at least once, as the documentation says


# --- commits --------------------------------------------------------------------------------


def test_a_query_whose_commit_lost_its_reply_repeats_nothing(case: Case) -> None:
    assert "a fault of the test" in case.ask("reply lost")["error"]
    assert case.ask()["error"] == ""
    assert case.events() == expected()


def test_a_batch_write_whose_commit_lost_its_reply_is_repeated_safely(case: Case) -> None:
    keyed = {"application": "import", "version": "3"}
    assert "a fault of the test" in case.ask("reply lost", do="batch", options=keyed)["error"]
    assert case.ask(do="batch", options=keyed)["error"] == ""
    assert case.events() == expected()


def test_an_earlier_version_of_a_batch_write_is_not_written_again(case: Case) -> None:
    for version in ("3", "4", "3", "4"):
        keyed = {"application": "import", "version": version}
        asked = case.ask(do="batch", options=keyed, tag=f"v{version}")
        assert asked["error"] == ""
    assert case.events() == sorted(f"v{v}-{row}" for v in (3, 4) for row in range(FILES * ROWS))


def test_a_plain_batch_write_is_written_each_time(case: Case) -> None:
    for tag in ("one", "two"):
        assert case.ask(do="batch", tag=tag)["error"] == ""
    assert len(set(case.events())) == 2 * FILES * ROWS


def test_a_lease_that_expires_before_the_commit_fails_the_query_and_the_restart_writes_once(
    case: Case,
) -> None:
    options = {"lease_s": "2"}
    error = case.ask("lease expires", options=options)["error"]
    assert "nothing is committed" in error
    assert "raise the option lease_s" in error
    assert case.events() == []
    assert case.ask()["error"] == ""
    assert case.events() == expected()


def test_a_batch_write_whose_lease_expires_writes_nothing(case: Case) -> None:
    options = {"lease_s": "2"}
    assert "nothing is committed" in case.ask("lease expires", do="batch", options=options)["error"]
    assert case.events() == []
    assert case.ask(do="batch")["error"] == ""
    assert case.events() == expected()


def test_a_failed_batch_write_aborts_its_transaction(case: Case) -> None:
    error = case.ask(do="batch", columns=["if(id = 200, null, tag) AS event"])["error"]
    assert "an event is null, in row 20 of partition 3" in error
    assert case.events() == []
    assert case.open_transactions() == []


# --- batches that run again -----------------------------------------------------------------


def test_a_batch_that_spark_did_not_note_is_not_written_again(case: Case) -> None:
    assert case.ask()["error"] == ""
    case.undo_last_commit()
    again = case.ask()
    assert (again["error"], again["batches"]) == ("", [1])
    case.add_file(2)
    assert case.ask()["error"] == ""
    assert case.events() == expected(3)


def test_a_batch_that_is_stopped_before_its_commit_is_written_once_by_the_restart(
    case: Case,
) -> None:
    gate = case.gate("gate in the middle")
    case.ask("gate in the middle", do="start", name=case.stream)
    await_file(gate / REACHED)
    (begun,) = case.open_transactions()
    case.ask(do="stop", name=case.stream)
    (gate / OPEN).touch()
    assert case.open_transactions() == [begun]
    assert case.ask()["error"] == ""
    assert case.events() == expected()

    async def state(client: Client) -> TransactionState:
        return (await client.transactions(case.stream).describe(begun)).state

    assert case.cluster.run(state) is TransactionState.COMMITTED


def test_a_driver_that_is_killed_after_the_commit_repeats_nothing(
    case: Case, tmp_path: Path
) -> None:
    (tmp_path / "killed").mkdir()
    with driver_process(tmp_path / "killed", ONE_PROCESS) as killed:
        killed.send(**case.request("driver dies after commit"))
        killed.await_death()
    assert len(case.events()) == ROWS
    assert case.ask()["error"] == ""
    assert case.events() == expected()


def test_a_batch_that_runs_again_with_other_parts_is_written_once(
    case: Case, tmp_path: Path
) -> None:
    (tmp_path / "killed").mkdir()
    with driver_process(tmp_path / "killed", ONE_PROCESS) as killed:
        gate = case.gate("gate before commit")
        killed.send(**case.request("gate before commit"))
        await_file(gate / REACHED)  # all parts of the batch are durable
        killed.process.kill()
        killed.await_death()
    (gate / OPEN).touch()
    assert case.events() == []
    assert case.ask(tasks=3)["error"] == ""
    assert case.events() == expected()


def test_two_drivers_of_one_application_write_each_batch_once(case: Case) -> None:
    options = {"application": "shared"}
    gate = case.gate("gate before commit")
    case.ask("gate before commit", do="start", name="first", options=options)
    await_file(gate / REACHED)
    other = str(case.directory / "other")
    assert case.ask(options=options, checkpoint=other)["error"] == ""
    assert case.events() == expected()
    (gate / OPEN).touch()
    assert case.ask(do="wait", name="first")["error"] == ""
    assert case.events() == expected()


@pytest.mark.parametrize(
    "gate", ["", "gate in the middle", "gate before commit", "gate after commit"]
)
def test_two_processes_on_one_checkpoint_write_each_batch_once(
    case: Case, other_driver: DriverProcess, gate: str
) -> None:
    other_driver.send(**case.request(gate))
    if gate:
        await_file(case.gate(gate) / REACHED)
    errors = [case.ask()["error"]]
    if gate:
        (case.gate(gate) / OPEN).touch()
    errors.append(other_driver.answer()["error"])
    found = case.events()
    assert len(found) == len(set(found))
    for error in filter(None, errors):
        assert "oncurrent" in error, error  # as Spark refuses it
    assert case.ask()["error"] == ""
    assert case.events() == expected()


# --- the stream changes ---------------------------------------------------------------------


async def _scale(client: Client, stream: str) -> None:
    segments = (await client.streams.current_segments(stream)).segments
    quarters = [(place / 4, (place + 1) / 4) for place in range(4)]
    await client.streams.scale(stream, [one.segment_id for one in segments], quarters)


def test_a_stream_that_scales_before_the_commit_takes_the_whole_batch(case: Case) -> None:
    gate = case.gate("gate before commit")
    case.ask("gate before commit", do="start", name=case.stream)
    await_file(gate / REACHED)
    case.cluster.run(lambda client: _scale(client, case.stream))
    (gate / OPEN).touch()
    assert case.ask(do="wait", name=case.stream)["error"] == ""
    assert case.events() == expected()


def test_a_query_goes_on_after_its_stream_was_scaled_and_truncated(case: Case) -> None:
    assert case.ask()["error"] == ""

    async def change(client: Client) -> None:
        await _scale(client, case.stream)
        tail = await client.streams.tail_cut(case.stream)
        await client.streams.truncate(
            case.stream, {one.segment_id: one.offset for one in tail.segments}
        )

    case.cluster.run(change)
    assert case.events() == []
    case.undo_last_commit()
    case.add_file(2)
    assert case.ask()["error"] == ""
    assert case.events() == sorted(set(expected(3)) - set(expected(2)))


# --- what is written ------------------------------------------------------------------------


def test_a_batch_without_rows_begins_no_transaction(case: Case) -> None:
    assert case.ask(do="batch", count=0)["error"] == ""

    async def begun(client: Client) -> int:
        transactions = client.transactions(case.stream)
        return len([one async for one in transactions.list(TransactionState.COMMITTED)])

    assert case.cluster.run(begun) == 0
    assert case.ask(do="batch", count=1)["error"] == ""  # three of four tasks have no rows
    assert case.events() == ["f-0"]


def test_keys_and_times_reach_the_stream(case: Case) -> None:
    columns = [
        "cast(id AS string) AS event",
        "if(id % 2 = 0, concat('k', id), null) AS routing_key",
        "timestamp_millis(1000 * id) AS event_time",
    ]
    assert case.ask(do="batch", columns=columns)["error"] == ""

    async def read(client: Client) -> set[tuple[int, str | None, int]]:
        async with client.reader(case.stream, until_tail=True) as reader:
            return {(int(one.payload), one.key, one.timestamp_ms) async for one in reader}

    rows = range(FILES * ROWS)
    assert case.cluster.run(read) == {
        (row, None if row % 2 else f"k{row}", 1000 * row) for row in rows
    }


def test_an_event_over_8_mib_is_written_exactly_once_too(case: Case) -> None:
    size = 9 * 1024 * 1024
    columns = [f"if(id = 1, repeat('x', {size}), cast(id AS string)) AS event"]
    assert case.ask(do="batch", columns=columns, count=4)["error"] == ""
    assert case.events() == ["0", "2", "3", "x" * size]


def test_a_missing_stream_and_its_scope_are_created_on_request(case: Case) -> None:
    case.stream = f"{SCOPE}-{case.stream.rpartition('/')[2]}/made"
    error = case.ask(do="batch")["error"]
    assert "create it, or add the option create_stream=true" in error
    made = {"create_stream": "true", "segments": "2"}
    assert case.ask(options=made)["error"] == ""
    assert case.ask(options=made, do="batch", tag="b")["error"] == ""
    assert len(case.events()) == 2 * FILES * ROWS
    described = case.cluster.run(lambda client: client.streams.current_segments(case.stream))
    assert len(described.segments) == 2


def test_a_topic_takes_records_by_key(case: Case) -> None:
    topic = f"t{case.stream.rpartition('/')[2]}"
    case.cluster.run(lambda client: client.topics.create(topic, partitions=2, wait_s=30))
    columns = ["concat(tag, '-', id) AS event", "cast(id % 7 AS string) AS routing_key"]
    options = {"topic": topic, "exactly_once": "false"}
    answer = case.ask(do="batch", options=options, columns=columns, stream=None)
    assert answer["error"] == ""

    async def read(client: Client) -> list[str]:
        async with client.topics.consumer(topic, until_end=True) as consumer:
            return sorted([bytes(one.value).decode() async for one in consumer])

    assert case.cluster.run(read) == expected()


def test_what_is_refused_tells_users_what_to_do(case: Case) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"mode": "overwrite"}, "a stream cannot be overwritten; use .mode"),
        ({"columns": ["id", "tag AS event"]}, "the column 'id' cannot be written; select event"),
        ({"columns": ["id AS event"]}, "cannot have the type bigint"),
        ({"options": {"topic": "t"}, "stream": None}, "a topic has no transactions"),
    ]
    for changes, text in refused:
        assert text in case.ask(do="batch", **changes)["error"]
