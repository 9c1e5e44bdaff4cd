"""The data directory: claimed by one, refused politely, never touched when it is too new."""

import json
import os
from pathlib import Path

import pytest

from anabranch.cli.up.directory import FORMAT, Endpoints, claim
from anabranch.common.errors import DirectoryInUse, DirectoryUnusable, FormatTooNew


def test_a_second_claim_names_the_holder(tmp_path: Path) -> None:
    with claim(tmp_path), pytest.raises(DirectoryInUse) as refused, claim(tmp_path):
        raise AssertionError("must not be claimed twice")

    assert refused.value.fields == {"path": str(tmp_path), "pid": os.getpid()}


def test_a_directory_can_be_claimed_again_after_its_release(tmp_path: Path) -> None:
    with claim(tmp_path):
        pass

    with claim(tmp_path) as directory:
        assert json.loads((directory.root / "format").read_text()) == {"format": FORMAT}


def test_a_newer_format_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    (tmp_path / "format").write_text(json.dumps({"format": FORMAT + 1}))

    with pytest.raises(FormatTooNew), claim(tmp_path):
        raise AssertionError("must not be claimed")

    assert [path.name for path in tmp_path.iterdir()] == ["format"]


@pytest.mark.parametrize("text", ["", "7", "{}", '{"format": null}'])
def test_an_unreadable_format_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "format").write_text(text)

    with pytest.raises(DirectoryUnusable), claim(tmp_path):
        raise AssertionError("must not be claimed")


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DirectoryUnusable), claim(tmp_path / "file" / "data"):
        raise AssertionError("must not be claimed")


def test_endpoints_of_a_killed_cluster_are_gone_after_the_next_claim(tmp_path: Path) -> None:
    endpoints = Endpoints("nats://127.0.0.1:1", ("127.0.0.1:2",), "http://127.0.0.1:3")
    with claim(tmp_path) as directory:
        directory.publish(endpoints)
        assert json.loads(directory.endpoints_file.read_text()) == endpoints.as_dict()

    with claim(tmp_path) as directory:
        assert not directory.endpoints_file.exists()
