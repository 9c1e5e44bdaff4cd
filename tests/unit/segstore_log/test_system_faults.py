"""What the operating system may do to the journal of a real directory, at every call.

A disk that fails or is full, no descriptor left, and writes that are cut short: the journal ends by
name or goes on, and what it acknowledged is found by the next open. Syncs are counted and not
performed, because nothing here loses power.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.journal.journal import open_journal
from kit.fixed_catalog import run_at_once
from kit.log_driver import Callbacks, ScriptedSource, replayed

FILE_SIZE = 4096
CALLS = ("open", "pwritev", "fdatasync", "fsync", "posix_fallocate")


class FaultySystem:
    """Calls of the operating system, of which call `fails_at` (from 1) of `verb` goes wrong."""

    def __init__(self, verb: str = "", fails_at: int = 0, error: int = 0) -> None:
        self._verb = verb
        self._fails_at = fails_at
        self._error = error
        self.counts = dict.fromkeys(CALLS, 0)
        self._real = {verb: getattr(os, verb) for verb in CALLS}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """These calls are what every module sees."""
        patches = [patch.object(os, verb, self._call_of(verb)) for verb in CALLS]
        for item in patches:
            item.start()
        try:
            yield
        finally:
            for item in patches:
                item.stop()

    def _call_of(self, verb: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.counts[verb] += 1
            wrong = verb == self._verb and self.counts[verb] == self._fails_at
            if wrong and self._error:
                raise OSError(self._error, os.strerror(self._error))
            if verb in ("fdatasync", "fsync"):
                return None
            if verb == "pwritev":
                return self._write(*arguments, short=wrong)
            return self._real[verb](*arguments)

        return call

    def _write(
        self, fd: int, buffers: list[bytes], offset: int, flags: int = 0, *, short: bool
    ) -> int:
        data = b"".join(buffers)
        data = data[: max(1, len(data) // 3)] if short else data
        return self._real["pwritev"](fd, [data], offset)  # type: ignore[no-any-return]


def life(directory: Path, system: FaultySystem) -> ScriptedSource:
    """Open, append, roll, release, go on; as far as the system lets it."""
    source = ScriptedSource()
    with system.installed(), suppress(AnabranchError, OSError):  # with which a store ends
        _life(LocalDisk(directory), source)
    return source


def _life(disk: LocalDisk, source: ScriptedSource) -> None:
    callbacks = Callbacks()
    journal = open_journal(disk, ids=SeededIds(1), schedule=callbacks, file_size=FILE_SIZE)
    try:
        run_at_once(journal.create_log(0, "log-0"))
        view = run_at_once(journal.open_log(0, "log-0", 1, source))
        for number in range(14):
            source.put(b"%06d" % number * 130)
            view.ready()
            callbacks.run()
            if number == 8 and not source.failures:
                run_at_once(view.release(4))
    finally:
        journal.close()


def found(directory: Path) -> dict[int, bytes]:
    """What the next owner finds, by a system that is well again."""
    callbacks = Callbacks()
    with FaultySystem().installed():
        journal = open_journal(
            LocalDisk(directory), ids=SeededIds(2), schedule=callbacks, file_size=FILE_SIZE
        )
        run_at_once(journal.create_log(0, "log-0"))
        seen = replayed(run_at_once(journal.open_log(0, "log-0", 2, ScriptedSource())), 4)
        journal.close()
    return seen


def sweep(directory: Path, verb: str, error: int) -> int:
    """Each call of the verb goes wrong once; how many there were."""
    (directory / "whole").mkdir(parents=True)
    whole = FaultySystem()
    life(directory / "whole", whole)
    for number in range(1, whole.counts[verb] + 1):
        place = directory / str(number)
        place.mkdir()
        source = life(place, FaultySystem(verb, number, error))
        seen = found(place)
        for sequence, payload in source.durable.items():
            assert sequence <= 4 or seen[sequence] == payload, f"lost by {verb} {number}"
        assert seen.items() <= source.taken.items()
    return whole.counts[verb]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.EIO])
def test_no_descriptor_for_any_open(tmp_path: Path, error: int) -> None:
    assert sweep(tmp_path / "a", "open", error) > 10


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_an_error_of_any_write(tmp_path: Path, error: int) -> None:
    assert sweep(tmp_path / "a", "pwritev", error) > 15


def test_any_write_cut_short_is_continued(tmp_path: Path) -> None:
    assert sweep(tmp_path / "a", "pwritev", 0) > 15


@pytest.mark.parametrize(
    ("verb", "error"), [("fsync", errno.EIO), ("posix_fallocate", errno.ENOSPC)]
)
def test_an_error_of_any_other_call(tmp_path: Path, verb: str, error: int) -> None:
    assert sweep(tmp_path / "a", verb, error) >= 4


def test_a_life_without_faults_acknowledges_everything(tmp_path: Path) -> None:
    source = life(tmp_path, FaultySystem())
    assert list(source.durable) == list(range(1, 15))
    assert source.failures[0].code == "unavailable", "told at the close"
