"""A command that forks is, for the shell that started it, one that has been started."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.forked_commands import forked_commands
from kit.infra import LOOPBACK

SECONDS_MAX = 30.0
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with forked_commands(tmp_path_factory.mktemp("commands")) as folder:
        yield folder


@contextmanager
def waiting_command(programs: Path) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A command that waits for a NATS server which says nothing, and the server's end."""
    with socket.create_server((LOOPBACK, 0)) as silent:
        silent.settimeout(SECONDS_MAX)
        url = f"nats://{LOOPBACK}:{silent.getsockname()[1]}"
        command = [str(programs / "anabranch"), "--nats", url, "scope", "list"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as stand_in:
            connection, _ = silent.accept()
            with connection:
                connection.settimeout(SECONDS_MAX)
                yield stand_in, connection


def test_it_has_the_arguments_the_directory_the_environment_and_the_files_of_one(
    programs: Path, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    ended = subprocess.run(
        ["sh", "-c", "cat | anabranch context add saved --http http://host:1; anabranch --wrong"],
        input="",
        capture_output=True,
        text=True,
        cwd=tmp_path / "here",
        env={
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(tmp_path),
        },
        check=False,
    )
    assert ended.returncode == EXIT_USAGE
    assert "--wrong" in ended.stderr
    assert "http://host:1" in "".join(
        path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    )


def test_it_is_interrupted_by_a_signal_to_what_the_shell_started(programs: Path) -> None:
    with waiting_command(programs) as (stand_in, _):
        stand_in.send_signal(signal.SIGTERM)
        assert stand_in.wait(SECONDS_MAX) == EXIT_INTERRUPTED


def test_it_dies_with_what_the_shell_started(programs: Path) -> None:
    with waiting_command(programs) as (stand_in, connection):
        stand_in.kill()
        assert connection.recv(1) == b""
