"""Tries the distributions with one interpreter, in empty environments outside of the repository.

A trial has two environments: a program's, with the client and then its extras, and a machine's,
with `anabranch`, which starts a cluster that keeps nothing, writes, reads and stops. Our
distributions come from the wheels, other packages from the package index. The steps of an
environment run in order, and those behind a failed one are left out.
"""

import asyncio
import json
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kit.release import program
from kit.release.steps import StepFailed, clean_environment, perform

READY_S_MAX = 120.0
STOPPED_S_MAX = 60.0
FAILED, SKIPPED = "FAILED", "-"


@dataclass(frozen=True, slots=True)
class Step:
    """One column of the table. `work` returns what the column shows."""

    name: str
    work: Callable[["Environment"], str]


class Environment:
    """An empty environment of an interpreter, with a working directory beside it."""

    def __init__(self, interpreter: Path, place: Path, wheels: Sequence[Path]) -> None:
        self.directory = place / "work"
        self.directory.mkdir(parents=True)
        self._bin = place / "environment" / "bin"
        self._wheels = wheels[0].parent
        self._constraints = place / "constraints.txt"
        self._constraints.write_text("".join(map(_constraint, wheels)))
        perform((interpreter, "-m", "venv", place / "environment"), place)

    def install(self, *requirements: str) -> str:
        """Install from our wheels and the package index; returns the number of distributions."""
        options = ("--quiet", "--disable-pip-version-check", "--find-links", self._wheels)
        pins = ("--constraint", self._constraints)
        self.python("-m", "pip", "install", *options, *pins, *requirements)
        self.python("-m", "pip", "check")
        listed = json.loads(self.python("-m", "pip", "list", "--format", "json"))
        return f"{len(listed)} packages"

    def python(self, *arguments: str | Path) -> str:
        return perform((self._bin / "python", "-P", *arguments), self.directory)

    def command(self, *arguments: str, **variables: str) -> str:
        """Run the command `anabranch`."""
        return perform((self.anabranch, *arguments), self.directory, **variables)

    @property
    def anabranch(self) -> Path:
        return self._bin / "anabranch"


def _constraint(wheel: Path) -> str:
    name, version, *_ = wheel.name.split("-")
    return f"{name}=={version}\n"


def _client(environment: Environment) -> str:
    environment.python("-c", program.CLIENT)
    return "ok"


def _extras(environment: Environment) -> str:
    installed = environment.install("anabranch-client[arrow,telemetry,zstd]")
    environment.python("-c", program.EXTRAS)
    return installed


def _command(environment: Environment) -> str:
    helped = environment.command("--help")
    if "stream" not in helped:
        raise StepFailed(f"anabranch --help names no streams:\n{helped}")
    return "ok"


def _demo(environment: Environment) -> str:
    """The quick demo. It leaves its report in the working directory."""
    if "--quick" not in environment.command("demo", "--help"):
        return SKIPPED
    environment.command("demo", "--quick")
    return "ok"


def _cluster(environment: Environment) -> str:
    return asyncio.run(_use_cluster(environment))


async def _use_cluster(environment: Environment) -> str:
    """Start a cluster, write and read by program and by command, stop it; says its parts."""
    async with _running(environment) as (endpoints_file, parts):
        await asyncio.to_thread(environment.python, "-c", program.CLUSTER, endpoints_file)
        await asyncio.to_thread(_talk, environment, str(endpoints_file))
    return " ".join(sorted(parts))


def _talk(environment: Environment, endpoints_file: str) -> None:
    def anabranch(*arguments: str) -> str:
        return environment.command(*arguments, ANABRANCH_NATS_URL=endpoints_file)

    anabranch("stream", "create", "release/lines")
    (environment.directory / "lines").write_text("hello\nstream\n")
    anabranch("write", "release/lines", "lines")
    found = anabranch("read", "release/lines", "--from", "head")
    if found.split() != ["hello", "stream"]:
        raise StepFailed(f"anabranch read printed other events than were written:\n{found}")


@asynccontextmanager
async def _running(environment: Environment) -> AsyncIterator[tuple[Path, set[str]]]:
    """`anabranch up --ephemeral` → its endpoints file and its parts, once it is ready.

    Raises StepFailed if it does not become ready, or does not end well when it is asked to.
    """
    process = await asyncio.create_subprocess_exec(
        environment.anabranch, "up", "--ephemeral", "--json",
        cwd=environment.directory, env=clean_environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        try:
            async with asyncio.timeout(READY_S_MAX):
                ready = await _ready(process)
        except TimeoutError as error:
            raise StepFailed(f"anabranch up was not ready after {READY_S_MAX:g} s") from error
        yield ready
    finally:
        output = await _stopped(process)
    if process.returncode:
        raise StepFailed(f"anabranch up ended with {process.returncode}:\n{output}")


async def _stopped(process: asyncio.subprocess.Process) -> str:
    """Ask `anabranch up` to end, and return its last output; kill it if it does not end."""
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
    try:
        async with asyncio.timeout(STOPPED_S_MAX):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"it was killed, because it did not stop within {STOPPED_S_MAX:g} s"
    return output.decode()


async def _ready(process: asyncio.subprocess.Process) -> tuple[Path, set[str]]:
    assert process.stdout is not None
    parts: set[str] = set()
    said = []
    async for line in process.stdout:
        said.append(line.decode())
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if told.get("event") == "part":
            parts.add(told["part"])
        elif told.get("event") == "ready":
            return Path(told["endpoints_file"]), parts
    raise StepFailed(f"anabranch up ended before it was ready:\n{''.join(said)}")


PROGRAM: Sequence[Step] = (
    Step("client installed", lambda it: it.install("anabranch-client")),
    Step("client", _client),
    Step("extras", _extras),
)
MACHINE: Sequence[Step] = (
    Step("anabranch installed", lambda it: it.install("anabranch")),
    Step("command", _command),
    Step("cluster", _cluster),
    Step("quick demo", _demo),
)
COLUMNS = [step.name for step in (*PROGRAM, *MACHINE)]


def try_with(
    interpreter: Path, wheels: Sequence[Path], report: Callable[[str], None]
) -> dict[str, str]:
    """All steps with this interpreter: what each one's column shows. `report` gets failures."""
    found: dict[str, str] = {}
    for steps in (PROGRAM, MACHINE):
        with tempfile.TemporaryDirectory(prefix="anabranch-release-") as place:
            make = partial(Environment, interpreter, Path(place), wheels)
            found |= take(steps, make, report)
    return found


def take(
    steps: Sequence[Step], make: Callable[[], Environment], report: Callable[[str], None]
) -> dict[str, str]:
    """Take the steps in order up to the first that fails; the columns of the rest say so."""
    found = {step.name: SKIPPED for step in steps}
    step = steps[0]
    try:
        environment = make()
        for step in steps:
            found[step.name] = step.work(environment)
    except StepFailed as error:
        found[step.name] = FAILED
        report(f"{step.name}: {error}")
    return found
