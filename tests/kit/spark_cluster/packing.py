"""Packs the environment of Spark's executors, by the commands that docs/spark.md lists.

The archive holds the project's wheels and the packages that tasks import. It holds no PySpark,
which the workers bring, and no interpreter: Python finds the packages through PYTHONPATH.
"""

import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from kit.release.build import build_all
from kit.release.steps import perform
from kit.spark_cluster.standalone import PYTHON
from tidy.source import ROOT

ARCHIVE = "environment.tar.gz"
WITH_DEPENDENCIES = ("anabranch-client[arrow,zstd]", "anabranch-common[objects]", "pandas<3")
WITHOUT_PYSPARK = ("--no-deps", "anabranch-spark")
EXCLUDED = ("--exclude=__pycache__", "--exclude=./pip", "--exclude=./setuptools")


def pack(directory: Path) -> Path:
    """Build the wheels and pack an environment in the directory; returns the archive.

    Raises StepFailed if a command fails, for example because the package index is unreachable.
    """
    wheels = build_all(ROOT, directory / "dist")
    environment = directory / "packed"
    perform((sys.executable, "-P", "-m", "venv", environment), directory)
    _install(wheels, environment, WITH_DEPENDENCIES)
    _install(wheels, environment, WITHOUT_PYSPARK)
    archive = directory / ARCHIVE
    packages = environment / "lib" / PYTHON / "site-packages"
    perform(("tar", *EXCLUDED, "-czf", archive, "-C", packages, "."), directory, GZIP="-1")
    return archive


def _install(wheels: Sequence[Path], environment: Path, requirements: Sequence[str]) -> None:
    pins = environment.parent / "constraints.txt"
    pins.write_text("".join(f"{line}\n" for line in _installed()))
    options = ("--quiet", "--disable-pip-version-check", "--find-links", wheels[0].parent)
    pip = (environment / "bin/python", "-P", "-m", "pip", "install")
    perform((*pip, *options, "--constraint", pins, *requirements), environment.parent)


def _installed() -> list[str]:
    """The versions of the running environment, which are those of the lock."""
    found = {each.name: each.version for each in distributions()}
    return [f"{name}=={version}" for name, version in sorted(found.items())]
