"""The newest part of a log: whole lines, from a time on, of a regular file only."""

import os
from pathlib import Path

import pytest

from anabranch.cli.support.log_tail import line_time_ms, lines_since, newest_part

OWN = '{"event": "x", "at": "2026-11-23T09:00:00.500Z"}'
AT_MS = 1_795_424_400_500


def test_a_log_that_is_too_large_loses_its_oldest_lines_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\nsecond\nthird\n")
    assert newest_part(log, 1000).text == "first\nsecond\nthird\n"
    tail = newest_part(log, 10)
    assert (tail.text, tail.cut_bytes) == ("third\n", 13)
    assert newest_part(log, 3).text == ""


def test_a_link_or_a_pipe_in_the_folder_of_logs_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link.log").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe.log")
    for name in ("link.log", "pipe.log"):
        with pytest.raises(OSError, match=r"Too many levels|not a regular file"):
            newest_part(tmp_path / name, 100)


def test_lines_before_the_time_are_left_out_with_the_lines_that_belong_to_them() -> None:
    text = f"before all\n{OWN}\n  its traceback\n" + OWN.replace("09:00", "11:00") + "\n  more\n"
    assert list(lines_since(text, AT_MS)) == text.splitlines()[1:]
    assert list(lines_since(text, AT_MS + 1)) == text.splitlines()[3:]
    assert list(lines_since(text, AT_MS + 10**8)) == []


def test_the_times_of_all_logs_are_understood() -> None:
    assert line_time_ms(OWN) == AT_MS
    # Tests run in the time zone UTC, and both servers write local times.
    assert line_time_ms("[32507] 2026/11/23 09:00:00.121493 [INF] x") == AT_MS - 500
    assert line_time_ms("32512:C 23 Nov 2026 09:00:00.128 # x") == AT_MS - 500
    assert line_time_ms("  File x, line 3") is None
    assert line_time_ms("{broken") is None
    assert line_time_ms('{"at": 5}') is None
