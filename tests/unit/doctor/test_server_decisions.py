"""The verdicts about NATS, Redis and the services, each from facts that were made up."""

from dataclasses import replace

import pytest

from anabranch.cli.doctor.decisions import nats, redis, services
from anabranch.cli.doctor.decisions.nats import (
    EXPECTED,
    Account,
    KeptStream,
    Monitored,
    NatsServer,
    StreamsKept,
)
from anabranch.cli.doctor.decisions.services import Service
from anabranch.cli.doctor.finding import Finding, Verdict
from anabranch.cli.up.nats_config import NATS_PAYLOAD_SIZE_MAX
from anabranch.common.runtime.health import PartHealth

OK, WARNING, FAILURE, SKIPPED = Verdict.OK, Verdict.WARNING, Verdict.FAILURE, Verdict.SKIPPED
SERVER = NatsServer("ID", "2.15.1", True, False, 1024 * 1024, None)
ACCOUNT = Account(100, -1, 22, -1, 42, -1)
KEPT = tuple(KeptStream(name, "file", 1, 2, 64) for name in EXPECTED)
STATUS = {"server_id": "ID", "storage": 10, "config": {"sync_always": True, "max_storage": 100}}
READY = Service("store", "segstore", "1.0", True, {"journal": PartHealth(True)})


def has(finding: Finding, verdict: Verdict, *words: str) -> bool:
    helped = bool(finding.remedy) or verdict in (OK, SKIPPED)
    return finding.verdict is verdict and helped and all(word in finding.text for word in words)


def test_nats_needs_jetstream_and_room_for_the_largest_message() -> None:
    assert has(nats.jetstream(SERVER), OK)
    assert has(nats.jetstream(replace(SERVER, jetstream=False)), FAILURE)
    assert has(nats.payload(SERVER), OK, "1 MiB")
    assert has(nats.payload(replace(SERVER, max_payload_bytes=65_536)), FAILURE, "64 KiB")


def test_the_embedded_nats_server_takes_the_largest_message() -> None:
    assert nats.PAYLOAD_BYTES_MIN == NATS_PAYLOAD_SIZE_MAX


def test_only_a_server_that_syncs_every_write_keeps_metadata() -> None:
    assert has(nats.synced(Monitored(STATUS, "ID")), OK)
    late = {**STATUS, "config": {"max_storage": 100}}
    assert has(nats.synced(Monitored(late, "ID")), FAILURE, "before it is on the disk")
    assert has(nats.synced(Monitored({"disabled": True, "config": {}}, "")), FAILURE, "disabled")
    assert has(nats.synced(Monitored({}, "")), FAILURE, "disabled")


def test_the_monitoring_port_of_another_server_says_nothing() -> None:
    assert has(nats.synced(Monitored(STATUS, "OTHER")), SKIPPED, "another NATS server")
    assert has(nats.synced(Monitored(STATUS, "")), OK)


@pytest.mark.parametrize(
    ("used", "limit", "verdict"), [(10, 100, OK), (90, 100, WARNING), (100, 100, FAILURE)]
)
def test_a_file_store_without_room_is_told_before_it_is_full(
    used: int, limit: int, verdict: Verdict
) -> None:
    status = {"storage": used, "config": {"max_storage": limit}}
    assert has(nats.file_store(Monitored(status, "")), verdict)
    account = replace(ACCOUNT, storage_bytes=used, storage_limit_bytes=limit)
    assert has(nats.account_limits(account), verdict)


def test_an_account_needs_streams_and_consumers() -> None:
    assert has(nats.account_limits(ACCOUNT), OK, "not limited")
    assert has(nats.account_limits(replace(ACCOUNT, streams_limit=22)), FAILURE, "22 streams")
    assert has(nats.account_limits(replace(ACCOUNT, consumers_limit=10)), FAILURE, "consumers")
    assert has(nats.account_limits(replace(ACCOUNT, streams_limit=30)), OK)


def test_the_streams_of_the_metadata_must_all_be_there_and_on_files() -> None:
    assert has(nats.streams(StreamsKept(KEPT, False)), OK, "22 streams with 44 messages")
    assert has(nats.streams(StreamsKept((), False)), SKIPPED, "no controller")
    finding = nats.streams(StreamsKept(KEPT[1:], False))
    assert has(finding, FAILURE, "missing: ANA_EVENTS_00")
    volatile = (replace(KEPT[0], storage="memory"), *KEPT[1:])
    assert has(nats.streams(StreamsKept(volatile, False)), FAILURE, "memory only: ANA_EVENTS_00")


def test_one_replica_is_right_on_one_server_and_few_in_a_cluster_of_nats() -> None:
    assert has(nats.streams(StreamsKept(KEPT, True)), WARNING, "1 replica each")
    three = tuple(replace(one, replicas=3) for one in KEPT)
    assert has(nats.streams(StreamsKept(three, True)), OK, "3 replicas each")
    lagging = (replace(three[0], replicas_lagging=1), *three[1:])
    assert has(nats.streams(StreamsKept(lagging, True)), WARNING, "ANA_EVENTS_00")


def test_redis_must_not_evict_leases() -> None:
    assert has(redis.eviction({"maxmemory_policy": "noeviction"}), OK)
    assert has(redis.eviction({"maxmemory_policy": "allkeys-lru"}), WARNING, "allkeys-lru")
    assert has(redis.eviction({}), WARNING, "unknown")
    assert has(redis.memory({"used_memory": "10", "maxmemory": "0"}), OK, "no limit")
    assert has(redis.memory({"used_memory": "10", "maxmemory": "100"}), OK)
    assert has(redis.memory({"used_memory": "90", "maxmemory": "100"}), WARNING)


def test_a_service_that_is_away_or_not_ready_is_named_with_its_reason() -> None:
    assert has(services.readiness([READY]), OK, "store: all parts are ready")
    away = Service("controller", problem="connection refused")
    assert has(services.readiness([READY, away]), FAILURE, "controller", "connection refused")
    full = replace(READY, ready=False, parts={"journal": PartHealth(False, "the disk is full")})
    assert has(services.readiness([full]), FAILURE, "store", "journal: the disk is full")
    assert has(services.readiness([replace(READY, ready=False)]), FAILURE, "store is not ready")


def test_a_ready_part_with_a_reason_is_a_warning() -> None:
    held = replace(READY, parts={"membership": PartHealth(True, "held: missing a")})
    assert has(services.readiness([held]), WARNING, "store: membership: held: missing a")


def test_failed_flushes_and_bytes_that_pile_up_are_told() -> None:
    assert has(services.tier_two([READY]), OK)
    failed = replace(READY, metrics={"anabranch_segstore_flush_failures_total": 3.0})
    assert has(services.tier_two([failed]), WARNING, "3 flushes of store have failed")
    name = 'anabranch_segstore_throttle_ratio{source="untiered"}'
    assert has(services.tier_two([replace(READY, metrics={name: 0.95})]), WARNING, "95%")
    assert has(services.tier_two([replace(READY, metrics={name: 0.8})]), OK)
    stuck = Service("c", "controller", parts={"export": PartHealth(True, "denied")})
    assert has(services.tier_two([stuck]), WARNING, "c cannot export streams: denied")


def test_unexpected_errors_are_counted_over_all_labels() -> None:
    assert has(services.defects([READY]), OK)
    name = "anabranch_controller_defects_total"
    metrics = {f'{name}{{part="step"}}': 1.0, f'{name}{{part="fold"}}': 2.0, f"{name}_x": 9.0}
    assert has(services.defects([replace(READY, metrics=metrics)]), WARNING, "store: 3")


def test_the_gateway_answers_or_the_check_fails() -> None:
    assert has(services.gateway(READY), OK)
    assert has(services.gateway(Service("the gateway", problem="no answer")), FAILURE)
    unready = replace(READY, ready=False, parts={"controller": PartHealth(False, "away")})
    assert has(services.gateway(unready), FAILURE, "controller: away")
