"""The commands for topics, partitions, SPUs and SPU groups, against objects in memory."""

from pathlib import Path

import pytest

from anabranch.client.topics.admin import WAIT_STEP_S
from anabranch.common.contracts import spus as s
from anabranch.common.contracts import topics as t
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    Compression,
    Computed,
    Deduplication,
    Ingress,
    TopicSpec,
)
from kit.topic_line import TopicLine, topic_line

MIB = 1 << 20


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> TopicLine:
    return topic_line(capsys, monkeypatch)


def spec_of(line: TopicLine, topic: str) -> TopicSpec:
    return line.topics.topics[topic].spec


# --- topics ---------------------------------------------------------------------------------------


def test_a_topic_is_created_listed_described_and_deleted(line: TopicLine) -> None:
    assert line("topic list") == "No topics found\n"
    assert line("partition list") == "No partitions found\n"
    assert line("topic create orders -p 3 -r 2") == 'topic "orders" created\n'
    listed = line("topic list").splitlines()
    assert listed[0].split("  ")[0] == "NAME"
    assert [cell.strip() for cell in listed[0].split("  ") if cell] == [
        "NAME", "TYPE", "PARTITIONS", "REPLICAS", "RETENTION TIME", "COMPRESSION",
        "DEDUPLICATION", "STATUS", "REASON",
    ]  # fmt: skip
    assert listed[1].split() == [
        "orders", "computed", "3", "2", "7", "d", "any", "none", "resolution::provisioned",
    ]  # fmt: skip
    described = line("topic describe orders")
    for text in ("Partition Count", "Replication Factor", "Status", "provisioned", "[5001, 5002]"):
        assert text in described
    assert line("topic delete orders") == 'topic "orders" deleted\n'
    line("topic delete orders", code=1)
    assert "Topic not found" in line.notes


def test_a_topic_is_described_to_programs_with_its_partitions(line: TopicLine) -> None:
    line("topic create orders -p 2")
    (found,) = line.records("topic describe orders")
    assert (found["topic"], found["resolution"]) == ("orders", "provisioned")
    assert [one["partition"] for one in found["partition_map"]] == [0, 1]
    assert [one["topic"] for one in line.records("topic list")] == ["orders"]


def test_the_options_of_a_topic_become_its_spec(line: TopicLine) -> None:
    line(
        "topic create all -p 2 -r 1 -i --retention-time 2h --segment-size 1MiB "
        "--max-partition-size 1GB --compression-type zstd --dedup-count 9 --dedup-age 10s -s"
    )
    assert spec_of(line, "all") == TopicSpec(
        Computed(2, 1, ignore_racks=True), 7200, MIB, 10**9, Compression.ZSTD,
        Deduplication(9, 10), system=True,
    )  # fmt: skip
    line("topic create plain")
    assert spec_of(line, "plain") == TopicSpec()
    line("topic create dedup --dedup")
    assert spec_of(line, "dedup").deduplication == Deduplication(5)
    assert "all" not in line("topic list")
    assert "all" in line("topic list --system")


def test_a_dry_run_creates_nothing(line: TopicLine) -> None:
    assert line("topic create orders -d") == 'topic "orders" is valid; it was not created\n'
    assert line.topics.topics == {}
    line("topic create orders -p 0 -d", code=1)
    assert "partition must be greater than 0" in line.notes


def test_a_topic_that_is_not_online_in_time_says_how_far_it_is(line: TopicLine) -> None:
    line.topics.slow = True
    line("topic create orders -p 2", code=1)
    assert "only 0 out of 2 provisioned" in line.notes
    assert line("topic create later --no-wait") == 'topic "later" created\n'
    waits = [one.wait_s for one in line.topics.asked if isinstance(one, t.CreateTopic)]
    assert (sum(waits), waits[-1], max(waits)) == (60.0, 0.0, WAIT_STEP_S)
    line("topic create x --timeout 91", code=2)
    assert "at most 90" in line.notes


def test_a_topic_without_enough_spus_is_listed_with_the_reason(line: TopicLine) -> None:
    line("topic create wide -r 4 --no-wait")
    assert (
        line("topic list")
        .splitlines()[1]
        .endswith("resolution::insufficient-resources  need 2 more SPU")
    )


@pytest.mark.parametrize(
    "text",
    ['[{"id":0,"replicas":[5001,5002]}]', '{"partitions":[{"id":0,"replicas":[5001,5002]}]}'],
)
def test_both_shapes_of_an_assignment_file_are_read(
    text: str, line: TopicLine, tmp_path: Path
) -> None:
    file = tmp_path / "map.json"
    file.write_text(text)
    line(f"topic create orders -f {file}")
    rows = (AssignedPartition(0, (5001, 5002)),)
    assert spec_of(line, "orders").replicas == Assigned(rows)
    assert "assigned" in line("topic list")
    line(f"topic create other -f {file} -p 2", code=2)
    assert "'--replica-assignment <PATH>' cannot be used with '--partitions'" in line.notes
    file.write_text("{")
    line(f"topic create other -f {file}", code=1)
    assert "error reading replica assignment" in line.notes


def test_a_configuration_file_stands_alone(line: TopicLine, tmp_path: Path) -> None:
    file = tmp_path / "topic.yaml"
    file.write_text("version: 0.1.0\nmeta:\n  name: orders\npartition:\n  count: 2\n")
    assert line(f"topic create --config {file}") == 'topic "orders" created\n'
    assert spec_of(line, "orders").replicas == Computed(2)
    for more, named in (("name", "[NAME]"), ("-r 2", "--replication"), ("--dedup", "--dedup")):
        line(f"topic create -c {file} {more}", code=2)
        assert f"'--config <PATH>' cannot be used with '{named}'" in line.notes
    line("topic create", code=2)
    assert "Topic name is required" in line.notes
    file.write_text("meta: [")
    line(f"topic create -c {file}", code=1)
    assert "not YAML" in line.notes


def test_codecs_that_do_not_exist_are_refused_by_name(line: TopicLine) -> None:
    line("topic create orders --compression-type gzip", code=2)
    assert "gzip is not available" in line.notes
    line("produce orders --compression lz4", code=2)
    assert "lz4 is not available" in line.notes


def test_system_topics_are_deleted_by_force_only_and_others_may_follow(line: TopicLine) -> None:
    line("topic create audit -s")
    line("topic create orders")
    line("topic delete audit orders", code=1)
    assert "system topic 'audit' can only be deleted forcibly" in line.notes
    assert line("topic delete audit orders --continue-on-error", code=1) == (
        'topic "orders" deleted\n'
    )
    assert line("topic delete audit --force") == 'topic "audit" deleted\n'


def test_partitions_are_added_and_shown(line: TopicLine) -> None:
    line("topic create orders -p 1")
    shown = line("topic add-partition orders -c 2").splitlines()
    assert shown[0] == 'added new partitions to topic: "orders"'
    assert [text.split() for text in shown[1:]] == [
        ["PARTITION", "SPU"], ["1", "[5002]"], ["2", "[5004]"],
    ]  # fmt: skip
    line("topic add-partition none", code=1)
    assert 'topic "none" not found' in line.notes


def test_what_a_topic_keeps_is_changed(line: TopicLine) -> None:
    line("topic create orders --retention-time 1d")
    changed = line("topic update orders --max-partition-size 2MiB --compression-type none")
    assert changed == 'topic "orders" updated\n'
    assert spec_of(line, "orders").partition_size_max_bytes == 2 * MIB
    assert spec_of(line, "orders").compression is Compression.NONE
    assert spec_of(line, "orders").retention_s == 86_400
    line("topic update orders", code=1)
    assert "no option names a change" in line.notes


def test_a_rebalance_shows_its_moves(line: TopicLine) -> None:
    assert line("topic rebalance --dry-run") == "nothing to move\n"
    move = t.PlannedMove(container=1024, partitions=7, before=(1, 2), after=(2, 3))
    line.topics.moves = (move,)
    assert line("topic rebalance").splitlines()[1].split() == [
        "1024", "7", "[1,", "2]", "[2,", "3]", "planned",
    ]  # fmt: skip
    assert [one.dry_run for one in line.topics.asked if isinstance(one, t.Rebalance)] == [
        True, False,
    ]  # fmt: skip


def test_partitions_are_listed_with_their_record_numbers(line: TopicLine) -> None:
    line("topic create orders -p 3 -r 2")
    header, first, *_ = line("partition list").splitlines()
    assert header.split()[:5] == ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "RESOLUTION"]
    assert first.split() == [
        "orders", "0", "5001", "[5001,", "5002]", "online", "2", "KiB", "0", "7", "7",
        "[5001,", "5002]", "[5002:", "5]",
    ]  # fmt: skip
    line("topic create none")
    assert len(line.records("partition list --topic orders")) == 3
    assert len(line.records("partition list")) == 4


# --- SPUs -----------------------------------------------------------------------------------------


def test_an_spu_is_registered_listed_and_unregistered(line: TopicLine) -> None:
    register = "spu register -i 7002 -p 10.0.0.7:9005 -l 10.0.0.8:9006 -n fake -r zone-1"
    assert line(register) == "custom-spu 'fake' registered successfully\n"
    spec = line.topics.spus["fake"].spec
    assert spec.public.ingress == (Ingress(hostname="10.0.0.7"),)
    header, *found = line("spu list").splitlines()
    assert header.split()[:7] == ["ID", "NAME", "STATUS", "TYPE", "RACK", "PUBLIC", "PRIVATE"]
    by_name = {text.split()[1]: text.split() for text in found}
    assert by_name["fake"][:8] == [
        "7002", "fake", "Init", "custom", "zone-1", "10.0.0.7:9005", "10.0.0.8:9006", "alive",
    ]  # fmt: skip
    assert by_name["store-5001"][:3] == ["5001", "store-5001", "offline"]
    assert by_name["store-5001"][7] == "away"
    assert by_name["other"][:3] == ["–", "other", "–"]
    assert "other" not in line("spu list --custom")
    assert line("spu unregister --id 7002") == "custom-spu 'fake' deleted\n"
    line("spu unregister -n fake", code=1)
    line("spu unregister -n fake -i 1", code=2)
    line("spu unregister", code=2)


def test_a_registered_spu_is_a_record_with_its_store(line: TopicLine) -> None:
    line("spu register -i 7002 -p h:1 -l h:2 -n fake --storage-size 20Gi")
    by_name = {one["node_id"]: one for one in line.records("spu list")}
    assert by_name["fake"]["spu_id"] == 7002
    assert by_name["fake"]["storage_size_bytes"] == 20 << 30
    assert (by_name["fake"]["live"], by_name["store-5001"]["live"]) == (True, False)
    assert (by_name["fake"]["registered"], by_name["other"]["registered"]) == (True, False)


def test_a_registration_may_only_be_checked(line: TopicLine) -> None:
    told = line("spu register -i 7002 -p h:1 -l h:2 --dry-run")
    assert told == "custom-spu 'custom-spu-7002' could be registered\n"
    assert len(line.topics.spus) == 3
    line("spu register -i 9 -p h:1 -l h:2 -n store-5001", code=1)
    assert "spu 'store-5001(9)' already defined" in line.notes


def test_an_spu_group_is_created_scaled_listed_and_deleted(line: TopicLine) -> None:
    assert line("spg list") == "no groups\n"
    told = line("spg create main -r 2 --min-id 11 --storage-size 20Gi --env A=b")
    assert told == "spu-group 'main' created successfully\n"
    (created,) = [one for one in line.topics.asked if isinstance(one, s.CreateSpuGroup)]
    assert created.spec.env == (("A", "b"),)
    assert line("spg scale main -r 3") == "spu-group 'main' scaled to 3\n"
    assert line("spg list").splitlines()[1].split() == [
        "main", "3", "11", "–", "20", "GiB", "reserved",
    ]  # fmt: skip
    assert line("spg delete main") == "spu-group 'main' deleted\n"
    line("spg scale main -r 1", code=1)
    line("spg create main --env A", code=1)
    assert "NAME=VALUE" in line.notes
