"""The verdicts about several NATS servers, and about logs in them."""

from pathlib import Path

import pytest

from anabranch.cli.contexts import Context
from anabranch.cli.doctor.decisions.nats import KeptStream
from anabranch.cli.doctor.decisions.shared_logs import (
    ServerSeen,
    SharedLogs,
    TierTwoPlace,
    log_replicas,
    nats_servers,
    tier2_place,
)
from anabranch.cli.doctor.examination import Examined
from anabranch.cli.doctor.finding import CannotLook, Finding, Verdict
from anabranch.cli.doctor.place import Named, place_of
from anabranch.cli.doctor.showing import summary
from anabranch.cli.doctor.sources.directory import Directory, directory
from anabranch.cli.doctor.sources.nats_monitor import seen
from anabranch.cli.target import Target
from anabranch.client import NodeDescription

SYNCED = {"config": {"sync_always": True}, "meta_cluster": {"cluster_size": 3}}
LATE = {"config": {"sync_interval": 120}, "meta_cluster": {"cluster_size": 3}}
ALONE = {"config": {"sync_always": True}}
ONE, TWO, THREE = (ServerSeen(f"10.0.0.{number}:8222", SYNCED) for number in (1, 2, 3))
AWAY = ServerSeen("10.0.0.3:8222", {}, "no answer: refused")
SHARED = NodeDescription(node_id="s1", host="h", port=1, log="jetstream")
OWN = NodeDescription(node_id="s2", host="h", port=2)
EVENTS = KeptStream("ANA_EVENTS_00", "file", 1, 2, 64)


def log(replicas: int) -> KeptStream:
    return KeptStream(f"ANA_LOG_{replicas}", "file", replicas, 2, 64)


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        ((ServerSeen("h:1", ALONE),), Verdict.OK, "1 NATS server, all answer"),
        ((ONE, TWO, THREE), Verdict.OK, "3 NATS servers, all answer"),
        ((ONE, TWO, AWAY), Verdict.WARNING, "1 NATS server of 3 cannot be asked: 10.0.0.3:8222"),
        ((ONE, AWAY, AWAY), Verdict.FAILURE, "2 NATS servers of 3 cannot be asked"),
        ((AWAY,), Verdict.FAILURE, "1 NATS server of 1 cannot be asked"),
        ((ONE, TWO), Verdict.WARNING, "2 of 3 NATS servers are known"),
        ((ONE, AWAY), Verdict.FAILURE, "1 NATS server of 3"),
        ((ONE, TWO, ServerSeen("h:3", LATE)), Verdict.FAILURE, "loss of power: h:3"),
        ((ONE, AWAY, ServerSeen("h:3", {})), Verdict.FAILURE, "loss of power: h:3"),
    ],
)
def test_every_nats_server_must_answer_and_sync_every_write(
    found: tuple[ServerSeen, ...], verdict: Verdict, words: str
) -> None:
    told = nats_servers(found)
    assert told.verdict is verdict
    assert words in told.text
    assert bool(told.remedy) == (verdict is not Verdict.OK)


@pytest.mark.parametrize(
    ("stores", "streams", "verdict"),
    [
        ((OWN,), (EVENTS,), Verdict.OK),
        ((OWN, SHARED), (EVENTS,), Verdict.OK),
        ((OWN, SHARED), (EVENTS, log(3)), Verdict.OK),
        ((OWN, SHARED), (EVENTS, log(3), log(1)), Verdict.NOTE),
        ((OWN,), (log(1),), Verdict.NOTE),
    ],
)
def test_logs_on_fewer_than_three_nats_servers_are_noted(
    stores: tuple[NodeDescription, ...], streams: tuple[KeptStream, ...], verdict: Verdict
) -> None:
    assert log_replicas(SharedLogs(stores, streams)).verdict is verdict


def test_a_tier_two_that_dies_with_its_machine_is_noted_beside_logs_that_do_not() -> None:
    assert tier2_place(TierTwoPlace((OWN,), "file:///data/tier2")).verdict is Verdict.OK
    led = SHARED.model_copy(update={"log": "replicated"})
    replicated = tier2_place(TierTwoPlace((led,), "file:///data/tier2"))
    assert (replicated.verdict, "stores replicate" in replicated.text) == (Verdict.NOTE, True)
    assert "the stores replicate them" in log_replicas(SharedLogs((led,), (EVENTS,))).text
    assert tier2_place(TierTwoPlace((SHARED,), "s3://bucket/a")).verdict is Verdict.OK
    noted = tier2_place(TierTwoPlace((OWN, SHARED), "file:///data/tier2"))
    assert noted.verdict is Verdict.NOTE
    assert "object store" in noted.remedy
    with pytest.raises(CannotLook, match="not known"):
        tier2_place(TierTwoPlace((SHARED,), ""))


def test_a_note_is_counted_and_is_no_failure() -> None:
    noted = [Examined("x", "", Finding(verdict, "x"), 1) for verdict in (Verdict.NOTE, Verdict.OK)]
    assert summary(noted) == "2 checks: 1 ok, 1 note, 0 warnings, 0 failures, 0 skipped"
    assert "note" not in summary(noted[1:])


async def test_a_nats_server_that_does_not_answer_is_told_with_its_place() -> None:
    found = await seen("http://user:secret@127.0.0.1:1/")
    assert (found.place, found.status) == ("127.0.0.1:1", {})
    assert found.problem.startswith("no answer: ")


def test_a_data_directory_shows_all_nats_servers_and_its_tier_two(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "segstore" / "tier2").mkdir(parents=True)
    for number, name in enumerate(("nats", "nats-2", "nats-3")):
        (tmp_path / "run" / f"{name}.conf").write_text(f'http: "127.0.0.1:{number}"\n')
    (tmp_path / "lock").write_text("")
    inode = (tmp_path / "lock").stat().st_ino
    locks = tmp_path / "locks"
    locks.write_text(f"1: FLOCK ADVISORY WRITE 1 08:01:{inode} 0 EOF\n")

    found = directory(tmp_path, locks)

    assert found.nats_monitor == "http://127.0.0.1:0,http://127.0.0.1:1,http://127.0.0.1:2"
    assert found.tier2 == (tmp_path / "segstore" / "tier2").as_uri()


def test_tier_two_is_where_the_environment_says_or_the_directory() -> None:
    here, found = Target(Context(data_dir="/data"), "test"), Directory(tier2="file:///here")
    assert place_of(here, found, None, Named(), {}).tier2 == "file:///here"
    environment = {"ANABRANCH_SEGSTORE_TIER2_URL": "s3://there"}
    assert place_of(here, found, None, Named(), environment).tier2 == "s3://there"
