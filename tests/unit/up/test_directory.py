"""The data directory: claimed by one, refused politely, never touched when it is too new."""

import json
import os
import stat
from pathlib import Path
from traceback import format_exception

import pytest

from anabranch.cli.up.choices import FORMAT, PLAIN_FORMAT, Choices, Log, Wish
from anabranch.cli.up.credentials import kept_credentials
from anabranch.cli.up.directory import Endpoints, claim
from anabranch.common.adapters.nats_options import connect_options
from anabranch.common.errors import (
    DirectoryInUse,
    DirectoryUnusable,
    FormatTooNew,
    InvalidSetting,
)
from anabranch.common.runtime.nats_target import nats_target


def test_a_second_claim_names_the_holder(tmp_path: Path) -> None:
    with claim(tmp_path), pytest.raises(DirectoryInUse) as refused, claim(tmp_path):
        raise AssertionError("must not be claimed twice")

    assert refused.value.fields == {"path": str(tmp_path), "pid": os.getpid()}


def test_a_directory_can_be_claimed_again_after_its_release(tmp_path: Path) -> None:
    with claim(tmp_path):
        pass

    with claim(tmp_path) as directory:
        assert json.loads((directory.root / "format").read_text()) == {"format": PLAIN_FORMAT}


def test_a_newer_format_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    (tmp_path / "format").write_text(json.dumps({"format": FORMAT + 1}))

    with pytest.raises(FormatTooNew), claim(tmp_path):
        raise AssertionError("must not be claimed")

    assert [path.name for path in tmp_path.iterdir()] == ["format"]


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "{}",
        '{"format": null}',
        '{"for',
        '{"format": 2}',
        '{"format": 2, "nats_servers": 2, "log": "journal"}',
        '{"format": 2, "nats_servers": 3, "log": "tape"}',
    ],
)
def test_an_unreadable_format_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "format").write_text(text)

    with pytest.raises(DirectoryUnusable), claim(tmp_path):
        raise AssertionError("must not be claimed")


@pytest.mark.parametrize("text", ["", "\0\0\0\0", "\n"])
def test_a_format_that_a_loss_of_power_emptied_is_written_again(tmp_path: Path, text: str) -> None:
    (tmp_path / "format").write_text(text)
    (tmp_path / "segstore").mkdir()
    (tmp_path / "segstore" / "journal").write_text("acknowledged")

    with claim(tmp_path):
        assert json.loads((tmp_path / "format").read_text()) == {"format": PLAIN_FORMAT}
        assert (tmp_path / "segstore" / "journal").read_text() == "acknowledged"


OTHER_CHOICES = [
    Choices(3, "jetstream"),
    Choices(3, "journal"),
    Choices(1, "jetstream"),
    Choices(1, "replicated", 3),
]


def wish_for(choices: Choices) -> Wish:
    if choices.log == "replicated":
        return Wish(choices.nats_count, replication=choices.replication)
    log: Log = "journal" if choices.log == "journal" else "jetstream"
    return Wish(choices.nats_count, log)


@pytest.mark.parametrize("choices", [Choices(), *OTHER_CHOICES])
def test_the_choices_of_a_new_directory_are_kept_for_later_starts(
    tmp_path: Path, choices: Choices
) -> None:
    with claim(tmp_path, wish_for(choices)) as directory:
        assert directory.choices == choices

    with claim(tmp_path) as directory:
        assert directory.choices == choices
    with claim(tmp_path, wish_for(choices)) as directory:
        assert directory.choices == choices
    folders = {path.name for path in tmp_path.glob("nats*")}
    assert folders == {"nats", "nats-2", "nats-3"} if choices.nats_count == 3 else {"nats"}


@pytest.mark.parametrize(
    ("made", "wish", "option"),
    [
        (Choices(), Wish(3), "--nats 1"),
        (Choices(), Wish(log="jetstream"), "--log journal"),
        (Choices(3, "jetstream"), Wish(1), "--nats 3"),
        (Choices(3, "jetstream"), Wish(3, "journal"), "--log jetstream"),
        (Choices(3, "jetstream"), Wish(1, "journal"), "--nats 3"),
        (Choices(), Wish(replication=3), "--log journal"),
        (Choices(1, "replicated", 3), Wish(log="journal"), "--replication 3"),
        (Choices(1, "replicated", 3), Wish(replication=2), "--replication 3"),
    ],
)
def test_another_choice_is_refused_and_nothing_is_touched(
    tmp_path: Path, made: Choices, wish: Wish, option: str
) -> None:
    with claim(tmp_path, wish_for(made)):
        pass
    before = sorted(tmp_path.rglob("*"))

    with (
        pytest.raises(InvalidSetting, match="another choice") as refused,
        claim(tmp_path, wish),
    ):
        raise AssertionError("must not be claimed")

    assert f"start it with {option} or without" in refused.value.remedy
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("text", [None, "", json.dumps({"format": PLAIN_FORMAT})])
def test_a_directory_of_an_older_release_has_one_server_and_journals(
    tmp_path: Path, text: str | None
) -> None:
    (tmp_path / "nats").mkdir()
    if text is not None:
        (tmp_path / "format").write_text(text)

    with pytest.raises(InvalidSetting), claim(tmp_path, Wish(3, "jetstream")):
        raise AssertionError("must not be claimed")
    with claim(tmp_path) as directory:
        assert directory.choices == Choices()


def test_an_older_release_refuses_a_directory_that_it_would_read_wrongly(tmp_path: Path) -> None:
    for number, choices in enumerate(OTHER_CHOICES):
        with claim(tmp_path / str(number), wish_for(choices)) as directory:
            told = json.loads((directory.root / "format").read_text())
        assert told["format"] > PLAIN_FORMAT


def test_what_a_restart_needs_is_synced_with_its_directory_before_anything_runs(
    tmp_path: Path, synced: list[str]
) -> None:
    root = tmp_path / "not" / "yet"

    with claim(root):
        at_first = set(synced)

    assert at_first >= {str(tmp_path), str(tmp_path / "not"), str(root), str(root / "format.new")}
    assert synced[-1] == str(root), "the name is synced after the content"


def test_no_other_user_can_enter_a_new_directory_or_an_old_one(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    for path in (old, old / "nats", old / "segstore-2"):
        path.mkdir(mode=0o755)
    (old / "format").write_text(json.dumps({"format": PLAIN_FORMAT}))

    for root in (new, old):
        with claim(root):
            assert mode_of(root) == 0o700
            folders = [path for path in root.iterdir() if path.is_dir()]
            assert {mode_of(path) for path in folders} == {0o700}


def test_a_directory_that_others_use_too_stays_open_to_them(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    (shared / "something else").mkdir(mode=0o755)

    with claim(shared):
        assert mode_of(shared) == mode_of(shared / "something else") == 0o755
        assert mode_of(shared / "nats") == 0o700


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in order."""
    seen: list[str] = []
    sync = os.fsync

    def note(fd: int) -> None:
        seen.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    return seen


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DirectoryUnusable), claim(tmp_path / "file" / "data"):
        raise AssertionError("must not be claimed")


def test_endpoints_of_a_killed_cluster_are_gone_after_the_next_claim(tmp_path: Path) -> None:
    endpoints = Endpoints("nats://127.0.0.1:1", ("127.0.0.1:2",), "http://127.0.0.1:3")
    with claim(tmp_path) as directory:
        directory.publish(endpoints)
        assert json.loads(directory.endpoints_file.read_text()) == endpoints.as_dict()
        assert mode_of(directory.endpoints_file) == 0o600

    with claim(tmp_path) as directory:
        assert not directory.endpoints_file.exists()


def test_credentials_are_drawn_once_for_their_owner_alone_and_kept(
    tmp_path: Path, synced: list[str]
) -> None:
    drawn = iter(["first", "second"])
    with claim(tmp_path) as directory:
        assert not directory.nats_credentials_file.exists(), "as in a directory of older releases"
        first = kept_credentials(directory, lambda: next(drawn))
        file = directory.nats_credentials_file
        assert mode_of(file) == 0o600
        assert synced[-2:] == [f"{file}.new", str(tmp_path)]
        file.chmod(0o644)

    with claim(tmp_path) as directory:
        assert kept_credentials(directory, lambda: next(drawn)) == first
        assert mode_of(file) == 0o600
    assert first.password.get_secret_value() == "first"
    assert "first" not in repr(first)


@pytest.mark.parametrize("text", ["", "{}", '["s3cret"]', '{"user": "u", "password": "s3cret"'])
def test_damaged_credentials_are_refused_without_showing_them(tmp_path: Path, text: str) -> None:
    with claim(tmp_path) as directory:
        directory.nats_credentials_file.write_text(text)
        with pytest.raises(DirectoryUnusable, match="credentials") as refused:
            kept_credentials(directory, lambda: "new")

    assert "delete the file" in refused.value.remedy
    assert "s3cret" not in "".join(format_exception(refused.value))


def test_a_client_finds_the_credentials_by_the_endpoints_file_or_its_directory(
    tmp_path: Path,
) -> None:
    endpoints = Endpoints("nats://127.0.0.1:1", ("127.0.0.1:2",), "http://127.0.0.1:3")
    with claim(tmp_path) as directory:
        kept_credentials(directory, lambda: "s3cret")
        directory.publish(endpoints)

    for where in (tmp_path, directory.endpoints_file, f"{tmp_path}/", f"{tmp_path}/endpoints.json"):
        target = nats_target(where)
        assert target.addresses == ("nats://127.0.0.1:1",)
        assert target.credentials == tmp_path / "nats-credentials.json"
        options = connect_options(target)
        assert (options["user"], options["password"]) == ("anabranch", "s3cret")
    assert "s3cret" not in repr(endpoints) + directory.endpoints_file.read_text() + repr(target)
