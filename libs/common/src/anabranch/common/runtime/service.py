"""The lifetime of a service process: start, readiness, signals, grace, exit code.

    starting ──main runs──▶ running ──SIGTERM, SIGINT──▶ stopping ──main returns──▶ exit 0
                               │                            └── grace over ────────▶ exit 1
                               ├── main raises ─────────────────────────────────────▶ exit 1
                               └── main raises DiskFailed ──────────────────────────▶ exit 75

If a process hangs while it stops, in a thread that waits for a disk or in code that ignores its
cancellation, it dumps the stacks of its threads to stderr some seconds later and exits.

`run_service` owns the event loop, the signal handlers, the logs, the telemetry and the health
port; the service's `main` owns everything else and gets a `Lifetime`. An error that the project
raises on purpose ends the process with one log line that names the remedy; any other error is a
defect and logs its traceback. A second signal ends the grace at once. A failed or full disk has an
exit code of its own (75, "try again later" in sysexits.h), because the log may lie on that disk.
"""

import asyncio
import faulthandler
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from types import MappingProxyType
from typing import TypeVar

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.exit_codes import (
    EXIT_FAILED,
    EXIT_STOPPED,
    exit_code,
    expected_errors,
)
from anabranch.common.runtime.garbage import set_apart_what_stays
from anabranch.common.runtime.health import HealthServer, PartHealth, is_ready
from anabranch.common.runtime.ids import SystemIds
from anabranch.common.runtime.logger import get_logger
from anabranch.common.runtime.logs import configure_logs, error_fields
from anabranch.common.runtime.loops import loop_factory
from anabranch.common.runtime.settings import NO_TARGET, TelemetryTarget
from anabranch.common.runtime.telemetry import Telemetry, open_telemetry, silent_telemetry

_log = get_logger(__name__)

Settings = TypeVar("Settings")

GRACE_SECONDS = 20.0
HARD_END_SECONDS = 8.0
"""How long a process may take to exit after its `main` has ended or its grace is over."""


class Lifetime:
    """The state of a service process: whether it must stop, and which parts are ready.

    `telemetry` collects metrics and traces; it defaults to a no-op.
    """

    def __init__(self, telemetry: Telemetry | None = None) -> None:
        self.telemetry = telemetry or silent_telemetry()
        self._stop = asyncio.Event()
        self._waits: set[asyncio.Timeout] = set()
        self._parts: dict[str, PartHealth] = {}

    async def wait_for_stop(self) -> None:
        """Wait until the service must stop. Bounded by the process's life."""
        await self._stop.wait()

    @asynccontextmanager
    async def until_stop(self) -> AsyncIterator[None]:
        """Leave the block early, without an error, when the service must stop.

        It is for waits that may be long before the service serves: the block's current `await` is
        cancelled, so what it was to produce is missing.
        """
        wait = asyncio.timeout(0 if self.stopping else None)
        try:
            async with wait:
                self._waits.add(wait)
                yield
        except TimeoutError:
            if not wait.expired():
                raise
        finally:
            self._waits.discard(wait)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def ready(self) -> bool:
        """Whether at least one part has reported and all parts are ready."""
        return is_ready(self.parts)

    @property
    def parts(self) -> Mapping[str, PartHealth]:
        """The last report of each part; while the process stops, also the part `process`."""
        if self.stopping:
            return {**self._parts, "process": PartHealth(False, "stopping")}
        return MappingProxyType(self._parts)

    def set_ready(self, part: str, ready: bool, reason: str = "") -> None:
        """Report a part. The service is ready when all reported parts are ready."""
        now = PartHealth(ready, reason)
        if self._parts.get(part) != now:
            _log.info("part changed", part=part, ready=ready, reason=reason)
        self._parts[part] = now

    def request_stop(self) -> None:
        """Ask the service to stop. Idempotent."""
        self._stop.set()
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())
        self._waits.clear()


def run_service(
    name: str,
    main: Callable[[Lifetime], Awaitable[None]],
    *,
    health_bind: str,
    log_level: str,
    telemetry: TelemetryTarget = NO_TARGET,
) -> int:
    """Run `main` until it returns, fails or is stopped; return the exit code.

    `health_bind` is ``host:port`` (0 = any free port) and also serves `/metrics`. After SIGTERM or
    SIGINT `main` has GRACE_SECONDS to return; then it is cancelled and the exit code is 1. Call
    it from the main thread, once per process.
    """
    raise_file_limit()
    try:
        configure_logs(name, log_level)
        with (
            closing(open_telemetry(name, telemetry, SystemIds().new_id())) as opened,
            asyncio.Runner(loop_factory=loop_factory()) as runner,
        ):
            set_apart_what_stays()
            return runner.run(_serve(main, health_bind, opened))
    except (AnabranchError, ExceptionGroup) as error:
        expected = expected_errors(error)
        if not expected:
            raise
        for leaf in expected:
            _log_failure(leaf)
    return exit_code(expected)


def raise_file_limit() -> None:
    """Let the process open as many files and connections as the system allows it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # Some systems allow less than their hard limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def settings_or_exit(name: str, load: Callable[[], Settings]) -> Settings:
    """Return the result of `load`; log a wrong setting in one line and raise SystemExit(1)."""
    try:
        return load()
    except AnabranchError as error:
        configure_logs(name, "info")
        _log_failure(error)
        raise SystemExit(EXIT_FAILED) from None


async def stop_within(
    main: Callable[[Lifetime], Awaitable[None]],
    lifetime: Lifetime,
    on_deadline: Callable[[asyncio.Timeout], None],
) -> int:
    """Run `main` under a deadline that is set only by a request to stop.

    `on_deadline` receives the (open) deadline once, before `main` starts.
    """
    deadline = asyncio.timeout(None)
    try:
        async with deadline:
            on_deadline(deadline)
            await main(lifetime)
    except TimeoutError:
        if not deadline.expired():
            raise
        _log.error("the service did not stop in time", grace_seconds=GRACE_SECONDS)
        return EXIT_FAILED
    _log.info("service stopped", asked=lifetime.stopping)
    return EXIT_STOPPED


async def _serve(
    main: Callable[[Lifetime], Awaitable[None]], health_bind: str, telemetry: Telemetry
) -> int:
    lifetime = Lifetime(telemetry)
    try:
        async with HealthServer(health_bind, lambda: lifetime.parts, telemetry.metrics.exposition):
            return await stop_within(
                main, lifetime, lambda deadline: _obey_signals(lifetime, deadline)
            )
    finally:
        _end_hard_after(HARD_END_SECONDS)


def _obey_signals(lifetime: Lifetime, deadline: asyncio.Timeout) -> None:
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        grace = 0.0 if lifetime.stopping else GRACE_SECONDS
        _log.info(
            "received a request to stop", signal=signal.Signals(number).name, grace_seconds=grace
        )
        lifetime.request_stop()
        if not deadline.expired():
            deadline.reschedule(loop.time() + grace)
        _end_hard_after(grace + HARD_END_SECONDS)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)


def _end_hard_after(seconds: float) -> None:
    """Exit the process after this time, even if its threads hang; the last call counts."""
    faulthandler.dump_traceback_later(seconds, exit=True)


def _log_failure(error: AnabranchError) -> None:
    _log.error("service failed", **error_fields(error))
