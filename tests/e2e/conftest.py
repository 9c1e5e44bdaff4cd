"""The compose file, brought up for real: needs a Docker engine and says loudly if none answers."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kit.compose import Compose

ENGINE_SECONDS_MAX = 20
_MISSING = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def compose(request: pytest.FixtureRequest) -> Iterator[Compose]:
    """A running cluster; gone, volumes and images included, at the end."""
    missing = why_not_here()
    if missing is not None:
        request.config.stash[_MISSING] = missing
        pytest.skip(missing)
    # Not pytest's own directory: that is gone before this ends when a run is interrupted.
    with TemporaryDirectory(prefix="anabranch-e2e-") as checkout:
        cluster = Compose(compose_command(), Path(checkout))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.remove()
        assert cluster.leftovers() == []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The reason why nothing was tested, where nobody can overlook it."""
    missing = config.stash.get(_MISSING, None)
    if missing is not None:
        terminalreporter.section("SKIPPED: nothing was tested in containers", "!", red=True)
        terminalreporter.line(missing)
        terminalreporter.section("SKIPPED", "!", red=True)


def compose_command() -> list[str]:
    """The plugin or, where it is absent, the program of its own; empty if there is neither."""
    if shutil.which("docker") and _answers(["docker", "compose", "version"]) is None:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else []


def why_not_here() -> str | None:
    """What is missing to run containers, or None."""
    if shutil.which("docker") is None:
        return "there is no docker program on PATH"
    silent = _answers(["docker", "info", "--format", "{{.ServerVersion}}"])
    if silent is not None:
        where = os.environ.get("DOCKER_HOST", "the default address")
        return f"no Docker engine answers at {where}: {silent}"
    return None if compose_command() else "there is neither `docker compose` nor docker-compose"


def _answers(command: list[str]) -> str | None:
    """None if `command` succeeds, else what it said."""
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=ENGINE_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {ENGINE_SECONDS_MAX} s"
    said = (done.stderr or done.stdout).strip()
    return None if done.returncode == 0 else said or f"exit code {done.returncode}"
