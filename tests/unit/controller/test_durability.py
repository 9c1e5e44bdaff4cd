"""Where the metadata is stored, and whether the servers' own words say that they keep it."""

from dataclasses import replace

import pytest

from anabranch.common.errors import MetadataNotSynced
from anabranch.common.model.nats_server import MonitoredServer, monitored_server, serving_servers
from anabranch.common.model.redis_server import RedisDurability
from anabranch.controller.domain.durability import (
    ReplicaSetting,
    check_redis,
    check_synced,
    doubt,
    wanted_replicas,
)

FIRST, SECOND = MonitoredServer("N1", "n1", True), MonitoredServer("N2", "n2", True)
UNSAFE = MonitoredServer("N3", "n3", False)
UNCHECKED = "ANABRANCH_CONTROLLER_NATS_SYNC=unchecked"


@pytest.mark.parametrize(
    ("setting", "count", "replicas"),
    [
        ("auto", None, 1),
        ("auto", 1, 1),
        ("auto", 2, 1),
        ("auto", 3, 3),
        ("auto", 5, 3),
        ("1", 3, 1),
        ("3", 1, 3),
        ("3", None, 3),
    ],
)
def test_three_servers_have_three_replicas_unless_the_setting_says_otherwise(
    setting: ReplicaSetting, count: int | None, replicas: int
) -> None:
    assert wanted_replicas(setting, count) == replicas


def test_servers_that_answered_and_sync_every_write_are_accepted() -> None:
    check_synced([FIRST, SECOND], {"n1", "n2"})
    assert doubt([FIRST, SECOND], "N1", {"n1", "n2"}) is None


def test_one_server_that_syncs_later_is_refused_with_a_remedy() -> None:
    with pytest.raises(MetadataNotSynced, match="before it is on the disk") as refusal:
        check_synced([FIRST, UNSAFE], {"n1", "n3"})

    assert refusal.value.fields["server"] == "n3"
    assert "sync_interval: always" in refusal.value.remedy
    assert UNCHECKED in refusal.value.remedy


def test_a_server_that_stores_no_metadata_may_sync_when_it_likes() -> None:
    check_synced([FIRST, UNSAFE], {"n1"})


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ([], "does not answer"),
        ([SECOND], "another server"),
        ([FIRST], "stores metadata answers"),
    ],
)
def test_a_server_that_has_not_answered_is_doubted_by_name(
    asked: list[MonitoredServer], text: str
) -> None:
    found = doubt(asked, "N1", {"n1", "n2"})

    assert found is not None
    assert text in found.message
    assert "NATS_MONITOR_URL" in found.remedy
    assert UNCHECKED in found.remedy


@pytest.mark.parametrize(
    ("jetstream", "syncs"),
    [
        ({"config": {"sync_always": True}}, True),
        ({"config": {"sync_always": False}}, False),
        ({"config": {"sync_interval": 120_000_000_000}}, False),
        ({}, False),
        (None, False),
    ],
)
def test_an_answer_without_the_setting_is_no_promise(jetstream: object, syncs: bool) -> None:
    answer = {"server_id": "N1", "server_name": "n1", "jetstream": jetstream}

    assert monitored_server(answer) == MonitoredServer("N1", "n1", syncs)


def test_another_answer_is_none() -> None:
    assert monitored_server({"server_name": "n1"}) is None
    assert monitored_server({"server_id": 7, "server_name": "n1"}) is None


def test_a_replica_that_is_away_does_not_serve() -> None:
    replicas = [{"name": "n2", "current": True}, {"name": "n3", "current": False}]

    assert serving_servers({"cluster": {"leader": "n1", "replicas": replicas}}) == ("n1", "n2")
    assert serving_servers({"cluster": {"leader": "n1"}}) == ("n1",)
    assert serving_servers({"cluster": {"replicas": replicas}}) == ()
    assert serving_servers({}) == ()


DURABLE = RedisDurability("7.2.4", "master", "yes", "always", "no", "noeviction")


@pytest.mark.parametrize("version", ["6.2", "6.2.0", "7.2.4", "8.0.1"])
def test_a_redis_that_syncs_always_and_never_evicts_holds_objects(version: str) -> None:
    check_redis(replace(DURABLE, version=version))


@pytest.mark.parametrize(
    ("found", "setting"),
    [
        (replace(DURABLE, appendonly="no"), "appendonly yes"),
        (replace(DURABLE, appendfsync="everysec"), "appendfsync always"),
        (replace(DURABLE, appendfsync=""), "appendfsync always"),
        (replace(DURABLE, no_appendfsync_on_rewrite="yes"), "no-appendfsync-on-rewrite no"),
        (replace(DURABLE, maxmemory_policy="allkeys-lru"), "maxmemory-policy noeviction"),
    ],
)
def test_a_redis_that_may_lose_objects_is_refused_with_the_setting(
    found: RedisDurability, setting: str
) -> None:
    with pytest.raises(MetadataNotSynced) as refusal:
        check_redis(found)

    assert setting in refusal.value.remedy_for("command")
    assert "ANABRANCH_CONTROLLER_OBJECTS_SYNC=unchecked" in refusal.value.remedy_for("command")


@pytest.mark.parametrize(
    "found",
    [
        replace(DURABLE, role="slave"),
        replace(DURABLE, version="6.0.16"),
        replace(DURABLE, version=""),
    ],
)
def test_a_replica_or_an_old_redis_is_refused(found: RedisDurability) -> None:
    with pytest.raises(MetadataNotSynced):
        check_redis(found)
