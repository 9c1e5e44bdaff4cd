"""Which cluster a command talks to, the file of contexts, and how `anabranch up` registers."""

import fcntl
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anabranch.cli import contexts
from anabranch.cli.__main__ import run
from anabranch.cli.contexts import (
    Context,
    Contexts,
    change_contexts,
    contexts_file,
    load_contexts,
    save_contexts,
)
from anabranch.cli.target import find_target, shown_address
from anabranch.cli.up.registration import free_name, is_alive, registered
from anabranch.common.errors import InvalidRequest, InvalidSetting

PRODUCTION = Context(http="https://streams")
SAVED = Contexts(
    {"production": PRODUCTION, "local": Context(data_dir="/x", up_pid=7)}, "production"
)


@pytest.mark.parametrize(
    ("options", "environment", "address", "why"),
    [
        ({"nats": "nats://a"}, {"ANABRANCH_HTTP": "http://b"}, "nats://a", "--nats"),
        ({}, {"ANABRANCH_HTTP": "http://b"}, "http://b", "ANABRANCH_HTTP"),
        ({}, {}, "https://streams", "current context production"),
        ({"http": ""}, {"ANABRANCH_HTTP": "http://b"}, "https://streams", "current context"),
        ({"context": "local"}, {}, "/x/endpoints.json", "--context"),
        ({}, {"ANABRANCH_CONTEXT": "local"}, "/x/endpoints.json", "ANABRANCH_CONTEXT"),
        ({"data_dir": "/d"}, {"ANABRANCH_NATS_URL": "nats://b"}, "/d/endpoints.json", "--data-dir"),
        ({"data_dir": "/d", "nats": "nats://a"}, {}, "nats://a", "--nats"),
    ],
)
def test_an_option_beats_the_environment_which_beats_the_current_context(
    options: dict[str, str | None], environment: dict[str, str], address: str, why: str
) -> None:
    target = find_target(options, environment, lambda: SAVED)
    assert target.address == address
    assert target.why.startswith(why)


@pytest.mark.parametrize(
    ("options", "environment", "directory"),
    [
        ({}, {"ANABRANCH_NATS_URL": "nats://a", "ANABRANCH_DATA_DIR": "/e"}, "/e"),
        ({"nats": "nats://a", "data_dir": "/o"}, {"ANABRANCH_DATA_DIR": "/e"}, "/o"),
        ({"context": "local"}, {}, "/x"),
        ({"nats": "nats://a"}, {"ANABRANCH_DATA_DIR": "/e"}, "out/anabranch"),
    ],
)
def test_the_source_that_names_the_cluster_may_name_a_directory_beside_its_address(
    options: dict[str, str | None], environment: dict[str, str], directory: str
) -> None:
    assert find_target(options, environment, lambda: SAVED).data_dir == Path(directory)


def test_without_any_of_them_the_default_directory_is_meant() -> None:
    target = find_target({}, {}, Contexts)
    assert target.address.endswith("out/anabranch/endpoints.json")
    assert target.why == "default directory"


@pytest.mark.parametrize(
    "options",
    [{"http": "http://a", "nats": "nats://b"}, {"http": "http://a", "context": "production"}],
)
def test_one_source_that_names_two_clusters_is_refused(options: dict[str, str | None]) -> None:
    with pytest.raises(InvalidRequest, match="two clusters"):
        find_target(options, {}, lambda: SAVED)


def test_an_unknown_context_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest) as caught:
        find_target({"context": "nope"}, {}, lambda: SAVED)
    assert caught.value.fields["known"] == "local, production"


def test_a_password_is_not_shown() -> None:
    assert shown_address(Context(nats="nats://u:p@ss@h:1")) == "nats://***@h:1"
    assert shown_address(Context(data_dir="/a@b")) == "/a@b"


def test_contexts_are_saved_whole_and_for_the_user_alone(tmp_path: Path) -> None:
    file = contexts_file({"XDG_CONFIG_HOME": str(tmp_path)})
    assert load_contexts(file) == Contexts()
    save_contexts(file, SAVED)
    assert load_contexts(file) == SAVED
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["contexts.json"]


def test_of_two_changes_at_once_none_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "contexts.json"

    def add(number: int) -> None:
        change_contexts(file, lambda saved: saved.add(f"c{number}", PRODUCTION))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(24)))
    assert len(load_contexts(file).named) == 24


def test_a_lock_that_is_not_released_is_named_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "LOCK_PAUSE_S", 0.0)
    file = tmp_path / "contexts.json"
    save_contexts(file, SAVED)
    with file.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InvalidSetting, match="contexts"):
            change_contexts(file, lambda saved: saved.remove("local"))
    assert load_contexts(file) == SAVED


@pytest.mark.parametrize("text", ["", "[]", '{"contexts": {"a": {"ftp": "x"}}, "current": ""}'])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "contexts.json"
    file.write_text(text)
    with pytest.raises(InvalidSetting) as caught:
        load_contexts(file)
    assert caught.value.fields["path"] == str(file)


def test_a_running_cluster_is_the_current_context_unless_the_user_chose_another(
    tmp_path: Path,
) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    file = contexts_file(environment)
    with registered("local", tmp_path, environment) as registration:
        assert (registration.name, registration.is_current) == ("local", True)
        assert load_contexts(file).current == "local"
        with registered("local", tmp_path, environment) as second:
            assert second.name == "local-2"
    assert load_contexts(file) == Contexts()

    save_contexts(file, Contexts({"production": PRODUCTION}, "production"))
    with registered("local", tmp_path, environment) as registration:
        assert (registration.name, registration.is_current) == ("local", False)
    assert load_contexts(file) == Contexts({"production": PRODUCTION}, "production")


def test_a_cluster_runs_without_a_context_if_the_file_cannot_be_used(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    file = contexts_file(environment)
    file.parent.mkdir()
    file.write_text("{")
    with registered("local", tmp_path, environment) as registration:
        assert registration.name == ""
        assert "contexts" in registration.trouble
    assert file.read_text() == "{"


def test_a_name_is_taken_over_from_a_process_that_is_gone_only() -> None:
    assert free_name(SAVED, "local", lambda _pid: False) == "local"
    assert free_name(SAVED, "local", lambda _pid: True) == "local-2"
    assert free_name(SAVED, "production", lambda _pid: False) == "production-2"
    assert is_alive(os.getpid())
    assert not is_alive(2**22 + 1)


def test_the_commands_add_use_show_and_remove_contexts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for variable in ("ANABRANCH_HTTP", "ANABRANCH_NATS_URL", "ANABRANCH_DATA_DIR"):
        monkeypatch.delenv(variable, raising=False)

    def told(line: str, code: int = 0) -> str:
        assert run(line.split()) == code
        shown = capsys.readouterr()
        return shown.out + shown.err

    told("context add production --http https://u:secret@streams")
    told("context add test --nats nats://127.0.0.1:4222")
    assert json.loads(told("context show --json"))["because_of"] == "current context production"
    told("context use test")
    listed = told("context list")
    assert "secret" not in listed
    assert "*  test" in listed
    told("context remove test")
    assert "default directory" in told("context show")
    assert "context list" in told("context use test", code=1)
    assert "one address" in told("context add x", code=1)
