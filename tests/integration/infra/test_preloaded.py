"""A program that forks from the nursery is a process like one that Python has started."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

SHOW = """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv,
    "directory": os.getcwd(),
    "environment": sorted(os.environ),
    "parent": os.getppid(),
    "leads": os.getsid(0) == os.getpid(),
    "given": sys.stdin.read(),
    "files": sorted(os.listdir("/proc/self/fd")),
    "forked": "anabranch.controller.wiring" in sys.modules,
    "main": __name__,
}))
print("no", file=sys.stderr)
sys.exit(7)
"""


def test_it_has_the_arguments_the_surroundings_and_the_exit_code_of_one(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SHOW, "one", "two"],
        input="given",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"ONE": "1"},
        start_new_session=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (7, "no\n")
    shown = json.loads(ended.stdout)
    assert shown.pop("files")[:3] == ["0", "1", "2"]
    assert shown == {
        "arguments": ["-c", "one", "two"],
        "directory": str(tmp_path),
        "environment": ["ONE"],
        "parent": os.getpid(),
        "leads": True,
        "given": "given",
        "forked": True,
        "main": "__main__",
    }


def test_it_is_ended_by_the_signal_that_is_sent_to_it() -> None:
    wait = "import signal; print('up', flush=True); signal.pause()"
    with subprocess.Popen(
        [sys.executable, "-c", wait], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL


def test_what_the_nursery_cannot_do_is_started_as_ever() -> None:
    read, write = os.pipe()
    with os.fdopen(read):
        told = "import os, sys; os.write(int(sys.argv[1]), b'told'); print(*sys.modules)"
        ended = subprocess.run(
            [sys.executable, "-c", told, str(write)],
            pass_fds=(write,),
            capture_output=True,
            text=True,
            check=True,
        )
        os.close(write)
        assert os.read(read, 10) == b"told"
    assert "anabranch.controller.wiring" not in ended.stdout.split()
