"""What the libraries log: nothing unless the program asks for it, and then with the fields."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.common.runtime.logger import get_logger
from anabranch.common.runtime.logs import configure_logs

LIBS = Path(__file__).parents[3] / "libs"
PROGRAM = """
import logging, sys
import anabranch.client, anabranch.client.blocking
from anabranch.common.adapters import nats_connection
from anabranch.common.runtime.logger import get_logger
{configured}
log = get_logger("anabranch.client.somewhere")
for say in (log.debug, log.info, log.warning, log.error):
    say("the connection is lost", server="n1")
nats_connection._log.error("it failed", exc_info=ValueError("why"))
"""


def output_of(configured: str) -> str:
    program = PROGRAM.format(configured=configured)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return ended.stdout + ended.stderr


def test_a_program_that_configures_no_logs_sees_none_of_ours() -> None:
    assert output_of("") == ""


def test_a_program_that_configures_its_logs_sees_ours_with_their_fields() -> None:
    lines = output_of("logging.basicConfig(level=logging.DEBUG)").splitlines()
    assert lines[:4] == [
        f"{level}:anabranch.client.somewhere:the connection is lost server='n1'"
        for level in ("DEBUG", "INFO", "WARNING", "ERROR")
    ]
    assert lines[-1] == "ValueError: why"


def test_a_service_writes_the_lines_of_the_libraries_as_its_own() -> None:
    lines = io.StringIO()
    configure_logs("demo", "info", lines)
    log = get_logger("anabranch.common.somewhere")
    log.debug("not told")
    log.warning("a step failed", step="seal", error=None)
    log.error("it failed", exc_info=ValueError("why"))

    failed, broken = map(json.loads, lines.getvalue().splitlines())
    assert re.fullmatch(r"20\d\d-.*Z", failed.pop("at"))
    assert failed == {
        "event": "a step failed", "step": "seal", "error": None, "level": "warning",
        "service": "demo",
    }  # fmt: skip
    assert "ValueError: why" in broken["exception"]


@pytest.mark.parametrize("lib", ["common", "client"])
def test_the_libraries_log_through_no_other_door(lib: str) -> None:
    doors = {"logs.py", "logger.py", "otlp.py"}
    for path in (LIBS / lib / "src").rglob("*.py"):
        if path.name not in doors:
            assert not re.search(r"structlog|logging\.getLogger", path.read_text()), path
