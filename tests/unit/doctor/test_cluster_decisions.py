"""The verdicts about members, containers and work, each from answers that were made up."""

import pytest

from anabranch.cli.doctor.decisions import cluster
from anabranch.cli.doctor.decisions.cluster import Members, Pending
from anabranch.cli.doctor.finding import Finding, Verdict
from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.membership import (
    BucketOwner,
    ClusterOverview,
    ControllerDescription,
    Hold,
    MemberCount,
)
from anabranch.common.contracts.operation_queries import Work
from anabranch.common.contracts.parked import ParkedDescription
from anabranch.common.contracts.queries import ContainerDescription, NodeDescription

OK, WARNING, FAILURE = Verdict.OK, Verdict.WARNING, Verdict.FAILURE
NOW_MS = 1_700_000_000_000
ONE = MemberCount(known=1, live=1)
OVERVIEW = ClusterOverview(
    answered_by="c-1", leader="c-1", term=3, controllers=ONE, stores=ONE, containers={"open": 4},
    buckets=(BucketOwner(bucket=0, owner="c-1"),),
)  # fmt: skip


def has(finding: Finding, verdict: Verdict, *words: str) -> bool:
    helped = bool(finding.remedy) == (verdict is not OK)
    return finding.verdict is verdict and helped and all(word in finding.text for word in words)


def members(controllers: str, stores: str) -> Members:
    """`+` is a live one, `-` one that is down."""
    return Members(
        tuple(
            ControllerDescription(controller_id=f"c{n}", session="", live=up == "+", since_ms=0)
            for n, up in enumerate(controllers)
        ),
        tuple(
            NodeDescription(node_id=f"s{n}", host="h", port=1, live=up == "+")
            for n, up in enumerate(stores)
        ),
    )


@pytest.mark.parametrize(
    ("controllers", "stores", "verdict", "words"),
    [
        ("+", "+", OK, "1 of 1 controller and 1 of 1 store"),
        ("+-", "++", WARNING, "down: c1"),
        ("++", "+-", WARNING, "down: s1"),
        ("+", "--", FAILURE, "nothing can be written"),
        ("+", "", FAILURE, "0 of 0 stores"),
    ],
)
def test_members_that_are_down_are_named(
    controllers: str, stores: str, verdict: Verdict, words: str
) -> None:
    assert has(cluster.members(members(controllers, stores)), verdict, words)


def test_a_cluster_needs_a_leader_and_owners_of_buckets() -> None:
    assert has(cluster.leader(OVERVIEW), OK, "c-1 leads, in term 3; 1 bucket")
    assert has(cluster.leader(OVERVIEW.model_copy(update={"leader": ""})), FAILURE)
    unowned = (BucketOwner(bucket=7, owner=""),)
    assert has(cluster.leader(OVERVIEW.model_copy(update={"buckets": unowned})), WARNING, "7")


def test_a_hold_is_a_failure_with_the_missing_members() -> None:
    assert has(cluster.holds(OVERVIEW), OK)
    blind = Hold(reason="blind", since_ms=0)
    assert has(cluster.holds(OVERVIEW.model_copy(update={"hold": blind})), FAILURE, "own beats")
    losses = Hold(reason="losses", since_ms=0, stores=("s1", "s2"))
    assert has(cluster.holds(OVERVIEW.model_copy(update={"hold": losses})), FAILURE, "s1, s2")


def container(number: int, state: str, reason: str = "") -> ContainerDescription:
    return ContainerDescription.model_validate(
        {"container": number, "state": state, "reason": reason}
    )


def test_containers_that_are_not_open_are_told_with_their_reason() -> None:
    assert has(cluster.containers([container(0, "open")]), OK, "1 container, all open")
    opening = [container(0, "open"), container(1, "assigned")]
    assert has(cluster.containers(opening), WARNING, "1 of 2 containers", "1 is assigned")
    broken = [container(0, "offline", "its log is damaged"), container(1, "assigned")]
    assert has(cluster.containers(broken), FAILURE, "0 is offline: its log is damaged")
    few = container(0, "open").model_copy(
        update={"replicas": ("a", "b", "c"), "isr": ("a", "b"), "isr_min": 2}
    )
    assert has(cluster.containers([few]), WARNING, "2 of 3 copies of 0 are in sync")
    fewer = few.model_copy(update={"isr": ("a",)})
    assert has(cluster.containers([few, fewer]), FAILURE, "1 of 3 copies", "not acknowledged")


def parked(name: str, part: str) -> ParkedDescription:
    return ParkedDescription(
        command_id=name, bucket=0, subject="s", attempts=10, first_ms=0, last_ms=1,
        error="KeyError: x", body="", part=part,
    )  # fmt: skip


def test_parked_commands_and_parked_work_are_different_failures() -> None:
    found = [parked("stream:demo/one", "step"), parked("4f2c", "command")]
    assert has(cluster.parked_commands(found), FAILURE, "1 command parked: 4f2c", "KeyError")
    assert has(cluster.stopped_aggregates(found), FAILURE, "stream:demo/one (step)", "KeyError")
    assert has(cluster.parked_commands(found[:1]), OK)
    assert has(cluster.stopped_aggregates(found[1:]), OK)


def work(**more: object) -> Work:
    fields = {"scope": "s", "stream": "x", "kind": "scale", "step": "seal", "bucket": 0}
    return Work.model_validate({**fields, "since_ms": NOW_MS - 1_000, **more})


def test_work_is_told_if_its_step_fails_or_if_it_waits_for_long() -> None:
    assert has(cluster.work(Pending((), NOW_MS)), OK, "no work")
    assert has(cluster.work(Pending((work(),), NOW_MS)), OK, "1 pending")
    error = ErrorBody(code="unavailable", message="no store serves it", remedy="start the store")
    failing = cluster.work(Pending((work(attempts=3, last_error=error),), NOW_MS))
    assert has(failing, WARNING, "s/x fails: no store serves it")
    assert failing.remedy == "start the store"
    assert has(cluster.work(Pending((work(attempts=1),), NOW_MS)), WARNING, "s/x fails")
    late = work(since_ms=NOW_MS - 120_000)
    assert has(cluster.work(Pending((late,), NOW_MS)), WARNING, "s/x wait for up to 2 min")


def test_stores_that_cannot_be_reached_from_here_are_told() -> None:
    assert has(cluster.addresses({"h:1": "", "h:2": ""}), OK, "2 stores")
    assert has(cluster.addresses({"h:1": "", "h:2": "refused"}), FAILURE, "h:2 (refused)")
