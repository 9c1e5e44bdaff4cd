"""A service as a process: signals, exit codes, and what a user sees in its log."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.request import urlopen

from anabranch.common.runtime.exit_codes import EXIT_DISK_FAILED

PROGRAM = """
import asyncio
import sys
import threading
from anabranch.common.errors import DiskFailed
from anabranch.common.runtime import service
from anabranch.common.runtime.service import Lifetime, run_service
from anabranch.common.runtime.settings import TelemetryTarget
from anabranch.common.runtime.threads import ThreadPool

async def hang(pool: ThreadPool) -> None:
    await pool.run(threading.Event().wait)

async def main(life: Lifetime) -> None:
    life.telemetry.metrics.gauge("demo_up", "Up", lambda: 1)
    if life.telemetry.tracer is not None:
        for number in range(5000):
            life.telemetry.tracer.start_span("work").end()
    if "fail" in sys.argv:
        raise DiskFailed("sync failed", path="journal-1")
    if "hung-directory" in sys.argv:
        hung = asyncio.create_task(hang(ThreadPool("tier2", 1)))
        await asyncio.sleep(0)
        hung.add_done_callback(lambda _: None)
    if "hung-thread" in sys.argv:
        service.HARD_END_SECONDS = 0.3
        asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    life.set_ready("demo", True)
    print("up", flush=True)
    await life.wait_for_stop()
    print("stopping", flush=True)
    if "stubborn" in sys.argv:
        await asyncio.Event().wait()
    await asyncio.sleep(0.02)
    print("drained", flush=True)

target = TelemetryTarget(next((one for one in sys.argv if "://" in one), ""))
sys.exit(
    run_service("demo", main, health_bind="127.0.0.1:0", log_level="info", telemetry=target)
)
"""
SECONDS_MAX = 15


@contextlib.contextmanager
def start(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # nothing happens if it has ended


def test_a_directory_that_hangs_keeps_no_process_from_ending_in_order() -> None:
    with start("hung-directory") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        output, log = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, output) == (0, "stopping\ndrained\n")
    assert json.loads(log.splitlines()[-1])["event"] == "service stopped"


def test_a_process_that_hangs_at_its_end_is_ended_hard_and_shows_where_it_was() -> None:
    with start("hung-thread") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        output, log = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, output) == (1, "stopping\ndrained\n")
    assert "Timeout" in log
    assert "shutdown_default_executor" in log or "join" in log


def test_a_service_serves_its_readiness_and_stops_on_sigterm(tmp_path: Path) -> None:
    with start(environment={"ANABRANCH_PORT_FILE": str(tmp_path / "port")}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        port = int((tmp_path / "port").read_text())

        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as reply:
            assert json.load(reply)["ready"] is True
        process.send_signal(signal.SIGTERM)
        output, log = process.communicate(timeout=SECONDS_MAX)

    assert process.returncode == 0
    assert output == "stopping\ndrained\n"
    assert [json.loads(line)["event"] for line in log.splitlines()][-2:] == [
        "received a request to stop",
        "service stopped",
    ]


def test_a_collector_that_is_away_is_told_once_and_does_not_keep_a_service_from_stopping(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # takes connections, never answers
        collector = f"http://127.0.0.1:{mute.getsockname()[1]}"
        environment = {"ANABRANCH_PORT_FILE": str(tmp_path / "port")}
        with start(collector, environment=environment) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            port = int((tmp_path / "port").read_text())
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
                assert b"demo_up" in reply.read()
            process.send_signal(signal.SIGTERM)
            output, log = process.communicate(timeout=SECONDS_MAX)

    assert process.returncode == 0
    assert output == "stopping\ndrained\n"
    events = [json.loads(line)["event"] for line in log.splitlines()]
    about = [event for event in events if "collector" in event]
    assert len(about) <= 2  # traces and metrics, once each
    assert set(events) - set(about) == {
        "health is served",
        "part changed",
        "received a request to stop",
        "service stopped",
    }


def test_a_named_error_ends_a_service_with_one_line_and_no_traceback() -> None:
    with start("fail") as process:
        _, log = process.communicate(timeout=SECONDS_MAX)

    last = json.loads(log.splitlines()[-1])
    assert process.returncode == EXIT_DISK_FAILED
    assert "Traceback" not in log
    assert last["event"] == "service failed"
    assert last["code"] == "disk-failed"
    assert last["fields"] == {"path": "journal-1"}
    assert last["remedy"]


def test_a_second_signal_ends_the_grace_at_once() -> None:
    with start("stubborn") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stopping\n"

        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=SECONDS_MAX)

    assert process.returncode == 1
    assert json.loads(log.splitlines()[-1])["event"] == "the service did not stop in time"
