"""What holds for all tests: silent logs, and the servers that a test asks for.

Services' log lines are dropped unless a test looks at them.
"""

from collections.abc import Iterator

import pytest
import structlog

from kit.infra import Infra
from kit.infra.selection import chosen_provider, start_infra, tell_what_was_skipped


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say which provider serves, also where `-q` leaves pytest's own header out."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    provider = chosen_provider()
    if isinstance(reporter, pytest.TerminalReporter):
        reporter.write_line(f"infra: {provider}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tell_what_was_skipped(terminalreporter)


@pytest.fixture(scope="session")
def infra() -> Infra:
    """Whoever starts NATS and Redis for this run; see `kit.infra`."""
    return start_infra(chosen_provider())


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Drop log lines; a simulation writes thousands of them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    yield
    structlog.reset_defaults()
