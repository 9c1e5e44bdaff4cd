"""What the command needs before it does anything."""

import subprocess
import sys

HEAVY = ("matplotlib", "pyspark", "pyarrow", "pandas", "httpx", "websockets")


def test_the_command_starts_without_what_only_some_commands_need() -> None:
    script = "import sys, anabranch.cli.app; print(*sys.modules)"
    modules = subprocess.run(
        # -I: a fresh start; `kit.preloaded` forks no such program.
        [sys.executable, "-I", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert "anabranch.cli.app" in modules
    assert [name for name in HEAVY if name in modules] == []
