"""How the command reaches the controller's program."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.__main__ import run

SECRET = "s3cret"


class Programs:
    """Takes the place of `subprocess.run`, and keeps what it was given."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.environments: list[dict[str, str]] = []

    def __call__(
        self, command: list[str], *, env: dict[str, str], **_: Any
    ) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        self.environments.append(env)
        return subprocess.CompletedProcess(command, 0, '{"verify": "all can be read"}\n', "")


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    made = Programs()
    monkeypatch.setattr(subprocess, "run", made)
    return made


def test_a_url_with_a_password_is_no_argument_of_the_program(programs: Programs) -> None:
    url = f"nats://u:{SECRET}@127.0.0.1:1"
    assert run(["controller", "verify", "--nats", url]) == 0
    assert SECRET not in str(programs.commands)
    assert programs.environments[0]["ANABRANCH_NATS_URL"] == url


def test_a_data_directory_is_handed_on_as_its_endpoints_file(
    programs: Programs, tmp_path: Path
) -> None:
    assert run(["controller", "verify", "--data-dir", str(tmp_path)]) == 0
    assert programs.environments[0]["ANABRANCH_NATS_URL"] == str(tmp_path / "endpoints.json")


def test_an_error_repeats_no_password_of_the_address(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.cli.session.CONNECT_TIMEOUT_S", 0.05)
    for url, code in (
        (f"nats://u:{SECRET}@127.0.0.1:9", "unavailable"),
        (f"nats://u:{SECRET}@127.0.0.1:x", "invalid-setting"),
    ):
        assert run(["scope", "list", "--json", "--nats", url]) == 1
        told = capsys.readouterr().err
        assert code in told
        assert SECRET not in told
