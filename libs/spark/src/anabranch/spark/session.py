"""Spark sessions for scripts, tests and pipelines: local ones, and the one of `spark-submit`.

A local session is a separate Java process, reachable only from this machine. Spark writes all files
but results into a temporary directory, which is removed at the end of the session, also if SIGTERM
or the end of the program comes first.
"""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from anabranch.common.errors import Unavailable
from anabranch.spark.java import find_java_home, java_version

STOP_SECONDS_MAX = 20.0
SHUFFLE_PARTITIONS = 2
WORKER_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 1024 * 1024),
}
"""Settings of glibc: a worker uses the memory of its last read again. By default it returns freed
buffers to the kernel, which then clears new pages for each read."""
LOGGING_FILE = "log4j2.properties"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
logger.repl.name = org.apache.spark.repl.Main
logger.repl.level = {level}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


@contextmanager
def open_session(app_name: str, *, quick: bool = False) -> Iterator[SparkSession]:
    """The session of `spark-submit` if it runs this program, otherwise a local one."""
    if _SUBMITTED not in os.environ:
        with local_session(app_name, quick=quick) as session:
            yield session
        return
    session = SparkSession.builder.appName(app_name).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def local_session(
    app_name: str,
    *,
    settings: Mapping[str, str] | None = None,
    log_level: str = "error",
    quick: bool = False,
) -> Iterator[SparkSession]:
    """A session on all processors of this machine; Spark's `settings` override the defaults.

    `quick` is for work of a minute or less: Java then compiles less. A process can have one session
    at a time. The session ends with the block, or with the program if nothing leaves the block.
    If the program does not handle SIGTERM itself, SIGTERM raises SystemExit (143) in the block.
    Raises BinaryNotFound without Java 17 or newer, Unavailable while another session is open.
    """
    if SparkSession.getActiveSession() is not None:
        raise Unavailable(
            "a Spark session is open in this process", remedy="stop the session, or use it"
        )
    with _left_at_sigterm(), ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="anabranch-spark-")
        directory = Path(stack.enter_context(made))
        stack.enter_context(_environment(directory))
        (directory / LOGGING_FILE).write_text(_LOGGING.format(level=log_level))
        chosen = {**_defaults(directory, quick=quick), **(settings or {})}
        builder = SparkSession.builder.master("local[*]").appName(app_name)
        for name, value in chosen.items():
            builder = builder.config(name, value)
        stack.callback(_end_java)
        session = builder.getOrCreate()
        stack.callback(session.stop)
        # Python destroys a block that nothing left when Spark's threads no longer run.
        atexit.register(stack.close)
        try:
            yield session
        finally:
            atexit.unregister(stack.close)


@contextmanager
def _left_at_sigterm() -> Iterator[None]:
    """Leave the block at SIGTERM, unless the program handles the signal."""
    handled = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    if handled or current_thread() is not main_thread():
        yield
        return

    received = False

    def leave(number: int, _: FrameType | None) -> None:
        nonlocal received
        received = True
        signal.signal(number, signal.SIG_IGN)  # A second signal must not end the clean-up.
        java = _java()
        if java is not None:
            java.kill()  # PySpark would wait for the answer of the interrupted call.
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except Exception:
        if received:  # What PySpark does on the way out of an interrupted call fails.
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        if received or signal.getsignal(signal.SIGTERM) is leave:  # else the program replaced it
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _defaults(directory: Path, *, quick: bool) -> dict[str, str]:
    java_options = (
        *(("-XX:TieredStopAtLevel=1",) if quick else ()),
        f"-Dderby.system.home={directory}",
        f"-Dlog4j2.configurationFile={(directory / LOGGING_FILE).as_uri()}",
        "-Duser.timezone=UTC",
    )
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@contextmanager
def _environment(directory: Path) -> Iterator[None]:
    """Set the environment of Spark's launcher and workers; restore it afterwards."""
    wanted = {
        "JAVA_HOME": str(
            find_java_home(os.environ, directory, which=shutil.which, version_of=java_version)
        ),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **{name: os.environ.get(name, value) for name, value in WORKER_MEMORY.items()},
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _java() -> "subprocess.Popen[bytes] | None":
    """The Java process of the session, if this process has started one."""
    return getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001


def _end_java() -> None:
    """End the Java process of the session, so that a later session starts its own.

    PySpark keeps the process for the next session and offers no way to end it.
    """
    gateway, process = SparkContext._gateway, _java()  # noqa: SLF001
    if gateway is None:
        return
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    with suppress(Py4JError, OSError):  # The process may have ended.
        gateway.shutdown()
    if process is None:
        return
    assert process.stdin is not None
    process.stdin.close()  # The launcher treats this as the end of its parent.
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
