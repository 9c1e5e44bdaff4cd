"""Printed bytes arrive whole, or the reason is named."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.cli.byte_target import ByteTarget, new_file, standard_output
from anabranch.common.errors import InvalidRequest


class Slow(io.BytesIO):
    """Takes two bytes at a time."""

    def write(self, data: object) -> int:
        return super().write(memoryview(data)[:2])  # type: ignore[arg-type]


class Broken(io.BytesIO):
    """Takes nothing."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    def write(self, data: object) -> int:
        raise self._error


@contextmanager
def standard_output_of(file: io.BytesIO) -> Iterator[list[int]]:
    """The process has this standard output; yields the descriptors that were replaced."""
    replaced: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", io.TextIOWrapper(file))
        patch.setattr(os, "dup2", lambda _, descriptor: replaced.append(descriptor))
        yield replaced


def test_a_file_that_takes_little_at_a_time_gets_everything() -> None:
    file = Slow()
    assert ByteTarget(file, "f").write(b"12345") == 5
    assert file.getvalue() == b"12345"


def test_a_file_is_replaced_and_one_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"an old and longer text")
    with new_file(path) as target:
        target.write(b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(InvalidRequest) as refused, new_file(tmp_path):
        pass
    assert refused.value.fields["path"] == str(tmp_path)


def test_a_full_disk_is_named_and_a_full_standard_output_is_given_up() -> None:
    full = Broken(OSError(28, "No space left on device"))
    with pytest.raises(InvalidRequest) as refused:
        ByteTarget(full, "f").write(b"1")
    assert refused.value.fields == {"path": "f", "cause": "No space left on device"}
    with standard_output_of(full) as replaced:
        with pytest.raises(InvalidRequest), standard_output() as target:
            target.write(b"1")
        assert replaced == [1]


def test_a_reader_that_is_gone_is_no_error_of_the_output() -> None:
    with standard_output_of(Broken(BrokenPipeError())) as replaced:
        with pytest.raises(BrokenPipeError), standard_output() as target:
            target.write(b"1")
        assert replaced == []
