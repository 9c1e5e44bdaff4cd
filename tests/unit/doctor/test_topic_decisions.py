"""The verdicts on SPUs, SPU groups, topics and partitions."""

import pytest

from anabranch.cli.doctor.decisions import topics as d
from anabranch.cli.doctor.finding import Finding, Verdict
from anabranch.cli.top.topics import partition_lines, spu_lines, topic_lines
from anabranch.common.contracts.spus import SpuDescription, SpuGroupDescription
from anabranch.common.contracts.topics import PartitionDescription, TopicDescription
from anabranch.common.model.objects import (
    PartitionResolution,
    SpuGroupResolution,
    SpuGroupSpec,
    SpuResolution,
    SpuSpec,
    TopicResolution,
    TopicSpec,
)


def spu(spu_id: int, state: str = "online", *, refused: bool = False) -> SpuDescription:
    return SpuDescription(
        name=f"s{spu_id}", spec=SpuSpec(spu_id), resolution=SpuResolution(state), refused=refused
    )


def topic(
    state: str = "provisioned", online: int = 2, *, reason: str = "", deleting: bool = False
) -> TopicDescription:
    return TopicDescription(
        topic="orders", incarnation="0123456789ab", spec=TopicSpec(), reason=reason,
        resolution=TopicResolution(state), partition_count=2, replication_factor=1,
        partitions_online=online, deleting=deleting, scope="topics", stream="_TOPICorders",
    )  # fmt: skip


def partition(index: int, state: str) -> PartitionDescription:
    return PartitionDescription(
        topic="orders", partition=index, segment="", container=1024, leader=-1,
        replicas=(7, 8), resolution=PartitionResolution(state),
    )  # fmt: skip


def told(found: Finding) -> tuple[Verdict, str]:
    return found.verdict, f"{found.text}; {found.remedy}"


def test_spus_that_are_away_or_refused_are_named_with_a_remedy() -> None:
    assert d.spus([]).verdict is Verdict.OK
    assert told(d.spus([spu(1), spu(2)]))[0] is Verdict.OK
    verdict, text = told(d.spus([spu(1), spu(2, "offline"), spu(3, "init")]))
    assert verdict is Verdict.WARNING
    assert "1 of 3 SPUs online; away: s2 (2, offline), s3 (3, init)" in text
    verdict, text = told(d.spus([spu(1), spu(9, "init", refused=True)]))
    assert verdict is Verdict.WARNING
    assert "not registered: s9" in text
    assert "anabranch spu register" in text


def test_an_invalid_spu_group_is_a_failure_with_its_reason() -> None:
    group = SpuGroupDescription(
        name="main", spec=SpuGroupSpec(), resolution=SpuGroupResolution.RESERVED
    )
    assert d.spu_groups([]).verdict is Verdict.OK
    assert d.spu_groups([group]).verdict is Verdict.OK
    why = {"resolution": SpuGroupResolution.INVALID, "reason": "conflict with: 11"}
    verdict, text = told(d.spu_groups([group, group.model_copy(update=why)]))
    assert verdict is Verdict.FAILURE
    assert "main (conflict with: 11)" in text


@pytest.mark.parametrize(
    ("state", "verdict", "remedy"),
    [
        ("provisioned", Verdict.OK, ""),
        ("pending", Verdict.WARNING, "wait some seconds"),
        ("insufficient-resources", Verdict.WARNING, "register more SPUs"),
        ("invalid-config", Verdict.FAILURE, "valid configuration"),
    ],
)
def test_a_topic_without_its_resources_is_told_with_the_reason(
    state: str, verdict: Verdict, remedy: str
) -> None:
    found = d.topics(d.Topics((topic(state, reason="need 1 more SPU"), topic())))
    assert found.verdict is verdict
    assert remedy in found.remedy
    assert ("need 1 more SPU" in found.text) is (verdict is not Verdict.OK)
    assert d.topics(d.Topics((topic(state, deleting=True),))).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("state", "remedy"),
    [("leader-offline", "start the SPUs"), ("out-of-storage", "keep less"),
     ("offline", "look at the SPUs")],
)  # fmt: skip
def test_a_partition_that_is_not_online_is_a_failure(state: str, remedy: str) -> None:
    assert d.partitions(d.Topics((topic(),))).verdict is Verdict.OK
    found = d.partitions(d.Topics((topic(online=1),), (partition(1, state),)))
    assert found.verdict is Verdict.FAILURE
    assert f"1 partition not online: orders-1 is {state} (SPUs 7, 8)" in found.text
    assert remedy in found.remedy


def test_top_shows_what_needs_attention_and_nothing_else() -> None:
    waiting = topic("insufficient-resources", 0, reason="need 1 more SPU")
    lines = list(topic_lines([topic(), waiting, topic(online=1), topic("pending", deleting=True)]))
    assert [(line.state, line.online, line.reason) for line in lines] == [
        ("insufficient-resources", 0, "need 1 more SPU"), ("provisioned", 1, ""),
    ]  # fmt: skip
    found = list(partition_lines([partition(0, "online"), partition(1, "out-of-storage")]))
    assert [(line.about, line.reason) for line in found] == [("orders-1", "replicas on SPUs 7, 8")]
    spus = list(spu_lines([spu(1), spu(2, "offline"), spu(3, "init", refused=True)]))
    assert [(line.about, line.state) for line in spus] == [
        ("SPU 2", "offline"), ("SPU s3", "refused"),
    ]  # fmt: skip
    assert all(line.remedy for line in (*lines, *found, *spus))
