"""An embedded cluster of a real NATS server and stand-in services: start, crash, refuse, stop.

The stand-ins are programs of a few lines that use the services' own lifetime and health, so the
supervisor is tested with real processes, signals and ports without what the services do.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

import kit
from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.cli.up.parts import ClusterPlan, PartSpec
from anabranch.common.errors import DirectoryInUse, PortInUse, Unavailable
from kit.stand_ins import Watch, stand_ins

BROKEN = "import sys; sys.exit('the disk is on fire')"
PARENT = f"""
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {str(Path(kit.__file__).parents[1])!r})
from kit.stand_ins import stand_ins
from anabranch.cli.up import UpSettings, embedded_cluster

async def main() -> None:
    async with embedded_cluster(UpSettings(Path(sys.argv[1])), parts=stand_ins) as cluster:
        await cluster.wait_ready()
        parts = ("nats", "redis", "controller", "segstore")
        print(*(pid for part in parts for pid in cluster.pids(part)))
        sys.stdout.flush()
        await asyncio.Event().wait()

asyncio.run(main())
"""
SECONDS_MAX = 20.0


def with_broken_segstore(plan: ClusterPlan) -> Sequence[PartSpec]:
    nats, redis, controller, segstore, _gateway = stand_ins(plan)
    return (nats, redis, controller, replace(segstore, command=(sys.executable, "-c", BROKEN)))


async def test_a_cluster_comes_up_publishes_its_endpoints_and_stops_in_order(
    tmp_path: Path,
) -> None:
    watch = Watch()
    async with embedded_cluster(UpSettings(tmp_path), watch=watch, parts=stand_ins) as cluster:
        await cluster.wait_ready()
        published = (tmp_path / "endpoints.json").read_text()
        assert str(cluster.endpoints["nats"]) in published

    downs = [[part for part, phase in row.items() if phase == "down"] for row in watch.seen]
    assert downs[-1] == ["nats", "redis", "controller", "segstore", "gateway"]
    assert ["gateway"] in downs
    assert ["segstore", "gateway"] in downs
    assert ["controller", "segstore", "gateway"] in downs
    assert not (tmp_path / "endpoints.json").exists()
    assert not list((tmp_path / "run").glob("*.pid"))


async def test_a_killed_segment_store_is_started_again_with_the_same_endpoints(
    tmp_path: Path,
) -> None:
    watch = Watch()
    async with embedded_cluster(UpSettings(tmp_path), watch=watch, parts=stand_ins) as cluster:
        await cluster.wait_ready()
        before, (pid,) = cluster.endpoints, cluster.segstore_pids()
        pid_file = tmp_path / "run" / "segstore.pid"
        assert int(pid_file.read_text()) == pid

        os.kill(pid, signal.SIGKILL)
        await watch.wait_for_restart("segstore")
        assert [int(pid_file.read_text())] == cluster.segstore_pids()

        assert cluster.endpoints == before
        assert cluster.segstore_pids() not in ([], [pid])


async def test_a_killed_redis_is_started_again_where_no_other_user_can_reach_it(
    tmp_path: Path,
) -> None:
    watch = Watch()
    async with embedded_cluster(UpSettings(tmp_path), watch=watch, parts=stand_ins) as cluster:
        await cluster.wait_ready()
        (pid,) = cluster.pids("redis")
        os.kill(pid, signal.SIGKILL)
        await watch.wait_for_restart("redis")

        async with Redis.from_url(cluster.redis_url) as client:
            assert await client.ping()
            told = await client.config_get("port", "unixsocketperm")
            assert told == {"port": "0", "unixsocketperm": "700"}


async def test_a_data_directory_may_be_named_from_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with embedded_cluster(UpSettings(Path("near")), parts=stand_ins) as cluster:
        await cluster.wait_ready()
        async with Redis.from_url(cluster.redis_url) as client:
            assert await client.ping()


async def test_a_cluster_runs_without_redis(tmp_path: Path) -> None:
    settings = UpSettings(tmp_path, redis=False)
    async with embedded_cluster(settings, parts=stand_ins) as cluster:
        await cluster.wait_ready()
        assert (cluster.redis_url, cluster.pids("redis")) == ("", [])


async def test_a_second_cluster_in_the_directory_is_refused(tmp_path: Path) -> None:
    async with embedded_cluster(UpSettings(tmp_path), parts=stand_ins):
        with pytest.raises(DirectoryInUse):
            async with embedded_cluster(UpSettings(tmp_path), parts=stand_ins):
                raise AssertionError("must not start")


async def test_a_taken_port_is_refused_before_anything_runs(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PortInUse):
            async with embedded_cluster(UpSettings(tmp_path, nats_port=port), parts=stand_ins):
                raise AssertionError("must not start")


async def test_a_part_that_never_comes_up_ends_the_cluster_with_its_last_words(
    tmp_path: Path,
) -> None:
    with pytest.raises(Unavailable) as failed:
        async with embedded_cluster(UpSettings(tmp_path), parts=with_broken_segstore) as cluster:
            await cluster.wait_ready()

    assert failed.value.fields["part"] == "segstore"
    assert failed.value.fields["last_log_line"] == "the disk is on fire"


async def test_an_error_of_the_caller_stops_the_cluster_and_comes_through(tmp_path: Path) -> None:
    watch = Watch()
    with pytest.raises(KeyError, match="mine"):
        async with embedded_cluster(UpSettings(tmp_path), watch=watch, parts=stand_ins):
            raise KeyError("mine")

    assert set(watch.seen[-1].values()) == {"down"}


def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        handles = [os.pidfd_open(pid) for pid in children]
        parent.kill()
        parent.wait(SECONDS_MAX)

    assert len(children) == 4
    for handle in handles:
        assert has_ended(handle)
        os.close(handle)


def has_ended(pidfd: int) -> bool:
    """Whether the process ends within the deadline: its descriptor becomes readable."""
    readable, _, _ = select.select([pidfd], [], [], SECONDS_MAX)
    return bool(readable)
