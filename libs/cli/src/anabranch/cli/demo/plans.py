"""The two plans of the demo: real flights with everything, and generated readings in seconds."""

from pathlib import Path

from anabranch.cli.demo import installed, sensors
from anabranch.cli.demo.flights import ROW_COUNT, Flights, table_path
from anabranch.cli.demo.outcome import ClusterKind, Plan
from anabranch.cli.demo.sensors import Sensors

CRASH_COUNT = 3
QUICK_HINT = "run `anabranch demo --quick`, which needs none of them"


def flights_plan(
    data_dir: Path,
    out: Path,
    *,
    limit: int | None,
    crash: bool,
    spark: bool,
    cluster: ClusterKind = "journal",
) -> Plan:
    """Raises BinaryNotFound if a package is missing; with the command that installs it."""
    return Plan(
        source=Flights(table_path(), min(limit or ROW_COUNT, ROW_COUNT)),
        data_dir=data_dir,
        out=out,
        draft_every=30,
        scale_count=4,
        crash_count=CRASH_COUNT if crash else 0,
        draws=True,
        without_spark="" if spark else "omitted by --no-spark",
        cluster=cluster,
    )


def quick_plan(
    data_dir: Path,
    out: Path,
    *,
    limit: int | None,
    crash: bool,
    cluster: ClusterKind = "journal",
) -> Plan:
    """A plan that needs no package beyond those of an embedded cluster."""
    return Plan(
        source=Sensors(min(limit or sensors.ROW_COUNT, sensors.ROW_COUNT)),
        data_dir=data_dir,
        out=out,
        draft_every=5,
        scale_count=2,
        crash_count=CRASH_COUNT if crash else 0,
        draws=False,
        without_spark="omitted by --quick",
        cluster=cluster,
    )


def check_flights_installed(*, spark: bool) -> None:
    """Raises BinaryNotFound, which names the commands to choose from."""
    modules = (*installed.FLIGHTS, *(installed.SPARK if spark else ()))
    installed.check_installed(modules, QUICK_HINT)
