"""Kafka as a peer, as far as it needs no broker: what runs, how, and why it is left out."""

from pathlib import Path

import pytest

from anabranch.common.errors import BinaryNotFound
from bench.case import QUICK
from bench.catalogue import KAFKA_LABELS, systems, workloads
from bench.report import left_out
from bench.run import kafka_for
from bench.systems.kafka.batches import Message, queue_all
from bench.systems.kafka.brokers import broker_command, format_command, plans, properties
from bench.systems.kafka.setup import SETTING, KafkaPrograms, find_kafka
from bench.systems.kafka.system import TopicKind, topic_config

PROGRAMS = KafkaPrograms(Path("/java/bin/java"), Path("/jars"), "4.1.0")
VERSIONS = {"/new/bin/java": 21, "/old/bin/java": 11, "/path/java": 17}


def settings(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in pairs}


def found(
    environment: dict[str, str], *, on_path: str | None = "/path/java", has_client: bool = True
) -> KafkaPrograms:
    return find_kafka(
        environment,
        which=lambda _: on_path,
        version_of=lambda program: VERSIONS.get(str(program)),
        has_module=lambda _: has_client,
    )


@pytest.fixture
def jars(tmp_path: Path) -> dict[str, str]:
    """The environment that names a directory with the jars of a server."""
    for name in ("kafka_2.13-4.1.0.jar", "kafka-clients-4.0.0.jar", "kafka_2.13-4.1.0-test.txt"):
        (tmp_path / name).touch()
    return {SETTING: str(tmp_path)}


def test_the_version_of_kafka_is_that_of_the_servers_jar(jars: dict[str, str]) -> None:
    assert found(jars) == KafkaPrograms(Path("/path/java"), Path(jars[SETTING]), "4.1.0")


def test_java_home_comes_before_path_and_an_old_one_is_passed_over(jars: dict[str, str]) -> None:
    assert found({**jars, "JAVA_HOME": "/new"}).java == Path("/new/bin/java")
    assert found({**jars, "JAVA_HOME": "/old"}).java == Path("/path/java")
    assert found({**jars, "ANABRANCH_JAVA_HOME": "/new", "JAVA_HOME": "/old"}).java == Path(
        "/new/bin/java"
    )


def test_a_missing_part_is_named_with_the_way_to_get_it(
    jars: dict[str, str], tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    with pytest.raises(BinaryNotFound, match="jars") as without_setting:
        found({})
    with pytest.raises(BinaryNotFound, match=SETTING) as without_jars:
        found({SETTING: str(empty)})
    with pytest.raises(BinaryNotFound, match="Python client") as without_client:
        found(jars, has_client=False)
    with pytest.raises(BinaryNotFound, match="Java") as without_java:
        found({**jars, "JAVA_HOME": "/old"}, on_path=None)

    assert SETTING in without_setting.value.remedy
    assert without_jars.value.fields["path"] == str(empty)
    assert "pip install confluent-kafka" in without_client.value.remedy
    assert "JAVA_HOME" in without_java.value.remedy


def test_a_run_without_kafka_says_so_in_its_report() -> None:
    def find() -> KafkaPrograms:
        raise BinaryNotFound("the jars of Kafka are not known", remedy=f"set {SETTING}")

    kafka, lines = kafka_for(workloads(["W1"]), find)

    assert kafka is None
    [line] = left_out({"left_out": lines})
    assert line.startswith("LEFT OUT: kafka: ")
    assert SETTING in line


def test_a_run_of_other_workloads_neither_looks_for_kafka_nor_complains() -> None:
    def find() -> KafkaPrograms:
        raise AssertionError("nobody needs it")

    assert kafka_for(workloads(["W5", "W11", "W14", "W20", "W24"]), find) == (None, [])
    assert kafka_for(workloads(["W25"]), lambda: PROGRAMS) == (PROGRAMS, [])


def test_kafka_takes_part_only_if_its_programs_are_there() -> None:
    without = [system.label for system in systems(QUICK)]
    beside = [system.label for system in systems(QUICK, PROGRAMS)]

    assert [label for label in beside if label not in without] == list(KAFKA_LABELS)
    assert [label for label in beside if label not in KAFKA_LABELS] == without
    assert [label.durability for label in KAFKA_LABELS] == ["D1", "D2", "D1", "D2"]
    assert len(set(beside)) == len(beside)


def test_one_broker_runs_what_all_systems_run_and_three_brokers_only_replication() -> None:
    names = [*(f"W{number}" for number in range(1, 29) if number != 9)]
    suited = {
        label: [each.name for each in workloads(names) if each.suits(label)]
        for label in KAFKA_LABELS
    }

    one = ["W1", "W2", "W3", "W4", "W6", "W8 1", "W8 16"]
    three = ["W25", "W25 awaited"]
    assert list(suited.values()) == [one, one, three, three]


def test_a_single_broker_is_its_own_controller_and_copies_nothing() -> None:
    [plan] = plans(1, Path("/data"), [9_000, 9_001], synced=False)
    told = settings(properties(plan))

    assert told["process.roles"] == "broker,controller"
    assert told["listeners"] == "PLAINTEXT://127.0.0.1:9001,CONTROLLER://127.0.0.1:9000"
    assert told["log.dirs"] == "/data/broker-1"
    assert told["transaction.state.log.replication.factor"] == "1"
    assert told["transaction.state.log.min.isr"] == "1"
    assert "log.flush.interval.messages" not in told


def test_three_brokers_share_the_controller_of_the_first_and_nothing_else() -> None:
    planned = plans(3, Path("/data"), [9_000, 9_001, 9_002, 9_003], synced=False)
    told = [settings(properties(plan)) for plan in planned]

    assert [each["process.roles"] for each in told] == ["broker,controller", "broker", "broker"]
    assert {each["controller.quorum.voters"] for each in told} == {"1@127.0.0.1:9000"}
    assert [each["node.id"] for each in told] == ["1", "2", "3"]
    assert told[2]["listeners"] == told[2]["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9003"
    assert len({each["log.dirs"] for each in told}) == 3
    assert {each["transaction.state.log.replication.factor"] for each in told} == {"3"}
    assert {each["transaction.state.log.min.isr"] for each in told} == {"2"}


def test_a_synced_broker_syncs_every_message_of_every_topic() -> None:
    [plan] = plans(1, Path("/data"), [9_000, 9_001], synced=True)

    assert settings(properties(plan))["log.flush.interval.messages"] == "1"


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (TopicKind(1, synced=False), {"min.insync.replicas": "1"}),
        (TopicKind(3, synced=False), {"min.insync.replicas": "2"}),
        (TopicKind(3, synced=True), {"min.insync.replicas": "2", "flush.messages": "1"}),
    ],
)
def test_a_topic_says_how_many_copies_an_event_needs_and_whether_they_are_synced(
    kind: TopicKind, config: dict[str, str]
) -> None:
    assert topic_config(kind) == config


def test_a_broker_has_the_heap_of_kafkas_start_script() -> None:
    command = broker_command(PROGRAMS, Path("/data/1.properties"))

    assert command[0] == "/java/bin/java"
    assert {"-Xms1g", "-Xmx1g"} <= set(command)
    assert command[-4:] == ("-cp", "/jars/*", "kafka.Kafka", "/data/1.properties")


def test_a_directory_is_prepared_for_the_cluster_of_its_configuration() -> None:
    command = format_command(PROGRAMS, Path("/data/1.properties"))

    assert command[-6:-4] == ("kafka.tools.StorageTool", "format")
    assert command[-2:] == ("-c", "/data/1.properties")


class FullProducer:
    """Has room for as many messages as are given for each turn, and then for one more a poll."""

    def __init__(self, rooms: list[int], *, raises: bool = False) -> None:
        self._rooms = rooms
        self._raises = raises
        self.queued: list[bytes] = []
        self.polls = 0

    def produce_batch(self, topic: str, messages: list[Message]) -> int:
        room = self._rooms.pop(0)
        if room == 0 and self._raises:
            raise BufferError("the queue is full")
        assert all("_error" not in message for message in messages)
        self.queued += [message["value"] for message in messages[:room]]
        for message in messages[room:]:
            message["_error"] = "the queue is full"
        return min(room, len(messages))

    def poll(self, timeout: float) -> int:
        self.polls += 1
        return 0


@pytest.mark.parametrize("raises", [False, True])
def test_events_that_found_no_room_are_queued_later_once_and_in_order(
    raises: bool,
) -> None:
    producer = FullProducer([3, 0, 1, 9], raises=raises)
    messages: list[Message] = [{"value": bytes([number])} for number in range(6)]

    queue_all(producer, "topic", messages)

    assert producer.queued == [bytes([number]) for number in range(6)]
    assert producer.polls == 3
    assert all(message.keys() == {"value"} for message in messages)
