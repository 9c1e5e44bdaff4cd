"""The sources: the kernel's files, a data directory, and servers that answer oddly."""

import asyncio
import fcntl
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.cli.doctor.finding import CannotLook
from anabranch.cli.doctor.sources import http_get, limits
from anabranch.cli.doctor.sources.clock import clock_status, http_date_bound, instant_ms
from anabranch.cli.doctor.sources.directory import directory
from anabranch.cli.doctor.sources.disk import disk_of, existing, sync_times
from anabranch.cli.doctor.sources.nats_monitor import jetstream_status
from anabranch.cli.doctor.sources.packages import packages
from anabranch.cli.doctor.sources.redis_server import redis_info
from anabranch.cli.doctor.sources.services import samples_in, service, target_in
from anabranch.common.errors import InvalidSetting, Unavailable
from anabranch.common.runtime.clock import SystemClock
from kit.served_streams import served_streams

LOOPBACK = "127.0.0.1"
READYZ = b'{"ready": false, "parts": {"journal": {"ready": false, "reason": "full"}}}'
METRICS = b"""# TYPE target_info gauge
target_info{service_name="anabranch-segstore",service_version="0.1.0"} 1.0
anabranch_segstore_flushes_total 3.0
anabranch_segstore_throttle_ratio{source="untiered"} 0.5
odd nothing
"""


@asynccontextmanager
async def answering(answers: dict[bytes, bytes]) -> AsyncIterator[int]:
    """A server that answers a request that begins with a key by its value; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.read(4096)
        for start, answer in answers.items():
            if start in request:
                writer.write(answer)
        writer.close()

    async with served_streams(serve) as port:
        yield port


def http(status: str, body: bytes, header: str = "x: y") -> bytes:
    return f"HTTP/1.1 {status}\r\n{header}\r\n\r\n".encode() + body


async def test_an_answer_is_read_with_its_headers_whatever_its_status() -> None:
    async with answering({b"GET /x?a=1 ": http("503 No", b"body", "Date: today")}) as port:
        found = await http_get.get(f"http://{LOOPBACK}:{port}/x?a=1")
    assert (found.status, found.headers, found.body) == (503, {"date": "today"}, b"body")


@pytest.mark.parametrize("answer", [b"", b"INFO {}\r\n", b"HTTP/1.1\r\n\r\n"])
async def test_a_server_that_speaks_no_http_is_unavailable(answer: bytes) -> None:
    async with answering({b"GET": answer}) as port:
        with pytest.raises(Unavailable, match="not HTTP"):
            await http_get.get(f"http://{LOOPBACK}:{port}/")


async def test_a_port_without_a_server_is_unavailable_with_the_cause() -> None:
    with pytest.raises(Unavailable, match="refused"):
        await http_get.get(f"http://{LOOPBACK}:1/")


async def test_a_service_is_known_by_its_health_and_its_metrics() -> None:
    answers = {b"/readyz": http("503 No", READYZ), b"/metrics": http("200 OK", METRICS)}
    async with answering(answers) as port:
        found = await service("store-2", f"http://{LOOPBACK}:{port}/")
    assert (found.name, found.kind, found.release) == ("store-2", "segstore", "0.1.0")
    assert not found.ready
    assert found.parts["journal"].reason == "full"
    assert found.metrics["anabranch_segstore_flushes_total"] == 3.0
    assert 'anabranch_segstore_throttle_ratio{source="untiered"}' in found.metrics


async def test_a_stranger_on_a_health_port_is_a_problem_and_no_error() -> None:
    async with answering({b"GET": http("200 OK", b"<html>")}) as port:
        assert "not one of ours" in (await service("x", f"http://{LOOPBACK}:{port}")).problem
    assert "refused" in (await service("x", f"http://{LOOPBACK}:1")).problem


def test_metrics_without_a_target_name_no_service() -> None:
    assert target_in(samples_in("a 1\n")) == {}


async def test_the_monitoring_port_must_be_one_of_nats() -> None:
    async with answering({b"/jsz?config=1": http("200 OK", b'{"server_id": "X"}')}) as port:
        assert await jetstream_status(f"http://{LOOPBACK}:{port}/") == {"server_id": "X"}
    async with answering({b"GET": http("404 No", b"{}")}) as port:
        with pytest.raises(InvalidSetting, match="monitoring port"):
            await jetstream_status(f"http://{LOOPBACK}:{port}")


INFO = b"# Server\r\nredis_version:7.2.0\r\nmaxmemory_policy:noeviction\r\n"


async def test_redis_tells_its_info_to_a_user_with_a_password() -> None:
    asked = b"*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$4\r\np@ss\r\n"
    answer = b"+OK\r\n$%d\r\n%s\r\n" % (len(INFO), INFO)
    async with answering({asked: answer}) as port:
        found = await redis_info(f"redis://u:p%40ss@{LOOPBACK}:{port}/1")
    assert found == {"redis_version": "7.2.0", "maxmemory_policy": "noeviction"}


@pytest.mark.parametrize("answer", [b"-NOPERM denied\r\n", b"-NOAUTH who\r\n"])
async def test_a_redis_that_denies_info_is_out_of_reach(answer: bytes) -> None:
    async with answering({b"INFO": answer}) as port:
        with pytest.raises(CannotLook, match="denies INFO"):
            await redis_info(f"redis://{LOOPBACK}:{port}")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400\r\n", b"", b"$999999999\r\n"])
async def test_a_server_that_is_no_redis_is_unavailable(answer: bytes) -> None:
    async with answering({b"INFO": answer}) as port:
        with pytest.raises(Unavailable):
            await redis_info(f"redis://{LOOPBACK}:{port}")
    with pytest.raises(InvalidSetting):
        await redis_info("http://x")


def test_times_of_servers_are_read_to_the_millisecond() -> None:
    assert instant_ms("2026-11-23T09:10:29.103662546Z") == 1_795_425_029_103
    assert instant_ms("2026-11-23T09:10:29Z") == 1_795_425_029_000
    assert instant_ms("2026-11-23T10:10:29.1+01:00") == 1_795_425_029_100
    bound = http_date_bound("Mon, 23 Nov 2026 09:10:29 GMT", 1_795_425_029_400, 1_795_425_029_450)
    assert (bound.low_ms, bound.high_ms) == (-450, 1600)


def test_the_kernel_tells_whether_its_clock_is_synchronised() -> None:
    found = clock_status()
    assert found is None or found.error_ms >= 0


def written(root: Path, **files: str) -> Path:
    """Files below `root`; a double underscore in a name is a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_limits_of_both_versions_of_control_groups_are_found(tmp_path: Path) -> None:
    assert limits.memory_limit(tmp_path) is None
    group = "sys/fs/cgroup"
    second = written(tmp_path / "second", proc__self__cgroup="0::/a/b\n")
    written(second / group, **{"a__b__memory.max": "max\n", "a__memory.max": "1000\n"})
    written(second / group, **{"a__b__cpu.max": "50000 100000\n"})
    assert limits.memory_limit(second) == 1000
    assert limits.processors(second) == 0.5
    text = "3:cpu,cpuacct:/d\n2:memory:/d\n1:name=systemd:/\n"
    first = written(tmp_path / "first", proc__self__cgroup=text)
    written(first / group / "memory", **{"memory.limit_in_bytes": "9223372036854771712\n"})
    assert limits.memory_limit(first) is None
    written(first / group / "memory", **{"d__memory.limit_in_bytes": "2000\n"})
    written(first / group / "cpu", **{"cpu.cfs_quota_us": "25000", "cpu.cfs_period_us": "100000"})
    assert limits.memory_limit(first) == 2000
    assert limits.processors(first) == 0.25


def test_how_long_idle_processors_poll_is_known_where_the_kernel_lets_them(tmp_path: Path) -> None:
    assert limits.poll_ns(tmp_path) is None
    polled = {"sys__module__haltpoll__parameters__guest_halt_poll_ns": "200000\n"}
    other = {"sys__devices__system__cpu__cpuidle__current_governor": "menu\n"}
    assert limits.poll_ns(written(tmp_path / "other", **polled, **other)) is None
    haltpoll = {"sys__devices__system__cpu__cpuidle__current_governor": "haltpoll\n"}
    assert limits.poll_ns(written(tmp_path / "guest", **polled, **haltpoll)) == 200_000


def test_the_limits_of_this_machine_are_plausible() -> None:
    found = limits.limits()
    assert found.memory_bytes > found.memory_free_bytes > 0
    assert found.processors > 0


def test_this_environment_satisfies_its_own_requirements() -> None:
    found = packages()
    assert "anabranch-cli" in found.parts
    assert [one for one in found.requirements if not one.satisfied] == []
    assert "nats-py" in {one.name for one in found.requirements}


def test_the_disk_of_a_directory_that_does_not_exist_is_that_of_its_parent(tmp_path: Path) -> None:
    assert existing(tmp_path / "a" / "b") == tmp_path.resolve()
    found = disk_of(tmp_path / "a", {})
    assert (found.path, found.writable, found.store_count) == (str(tmp_path.resolve()), True, 1)


def test_the_journals_in_a_directory_are_counted(tmp_path: Path) -> None:
    for store in ("segstore", "segstore-2"):
        (tmp_path / store / "journal").mkdir(parents=True)
    (tmp_path / "segstore" / "journal" / "journal-1").write_bytes(bytes(8192))
    found = disk_of(tmp_path, {"ANABRANCH_SEGSTORE_UNTIERED_BYTES_MAX": "4096"})
    assert (found.store_count, found.untiered_bytes_max) == (2, 4096)
    assert found.journal_bytes == 8192


def test_the_measurement_of_syncs_leaves_no_file(tmp_path: Path) -> None:
    times = sync_times(tmp_path, SystemClock(), count=3)
    assert len(times.took_ms) == 3
    assert list(times.took_ms) == sorted(times.took_ms)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_which_no_cluster_runs_names_no_ports(tmp_path: Path) -> None:
    written(tmp_path, run__store=("1"), lock="1\n")
    (tmp_path / "run" / "segstore.port").write_text("4000\n")
    found = directory(tmp_path)
    assert (found.exists, found.held, found.published, found.health) == (True, False, False, {})
    assert not directory(tmp_path / "none").exists


def test_a_directory_in_use_names_its_addresses_and_no_password(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "segstore-2.port").write_text("4000\n")
    (tmp_path / "run" / "nats.conf").write_text('http: "127.0.0.1:8222"\n  password: "secret"\n')
    (tmp_path / "endpoints.json").write_text(json.dumps({"gateway": "http://g"}))
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = directory(tmp_path)
    assert found.held
    assert found.health == {"segstore-2": "http://127.0.0.1:4000"}
    assert (found.nats_monitor, found.gateway) == ("http://127.0.0.1:8222", "http://g")
    assert "secret" not in repr(found)
    assert not directory(tmp_path).held


def test_without_a_list_of_locks_the_holder_must_live(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(f"{os.getpid()}\n")
    assert directory(tmp_path, tmp_path / "no-locks").held
    (tmp_path / "lock").write_text("999999999\n")
    assert not directory(tmp_path, tmp_path / "no-locks").held


def test_no_password_of_a_url_is_shown() -> None:
    assert http_get.without_login("http://u:p@ss@h:1/x?y=@") == "http://h:1/x?y=@"
    assert http_get.without_login("http://h:1") == "http://h:1"
