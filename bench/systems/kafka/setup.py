"""Finds the programs that Kafka needs as a peer: its jars, a Java runtime and the Python client.

`make setup` installs none of them. If one is missing, a run leaves Kafka out and says which one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch.common.errors import BinaryNotFound
from anabranch.spark.java import SETTING as JAVA_SETTING
from anabranch.spark.java import VERSION_MIN, VersionOf

SETTING = "ANABRANCH_BENCH_KAFKA_LIB"
"""The directory of the jars: `libs` of Kafka's own archive, or the dependencies of one artifact."""
CLIENT_MODULE = "confluent_kafka"
CLIENT = "confluent-kafka"
_SERVER_JAR = re.compile(r"kafka_[\d.]+-(?P<version>\d[\w.]*)\.jar")
_HOW = "docs/measuring.md, Compare with Kafka, has the commands"


@dataclass(frozen=True, slots=True)
class KafkaPrograms:
    """A Java program and the jars that it runs."""

    java: Path
    lib: Path
    version: str


def find_kafka(
    environment: Mapping[str, str],
    *,
    which: Callable[[str], str | None],
    version_of: VersionOf,
    has_module: Callable[[str], bool],
) -> KafkaPrograms:
    """The programs to run brokers with. Raises BinaryNotFound, which names the missing part."""
    if not environment.get(SETTING):
        raise BinaryNotFound(
            "the jars of Kafka are not known",
            remedy=f"set {SETTING} to their directory; {_HOW}", program="kafka",
        )  # fmt: skip
    lib = Path(environment[SETTING]).absolute()
    version = server_version(lib)
    if version is None:
        raise BinaryNotFound(
            f"{SETTING} names no directory with the jar of a Kafka server",
            remedy=f"correct it; {_HOW}", program="kafka", path=str(lib),
        )  # fmt: skip
    if not has_module(CLIENT_MODULE):
        raise BinaryNotFound(
            "the Python client of Kafka is not installed",
            remedy=f"run .venv/bin/pip install {CLIENT}", program=CLIENT,
        )  # fmt: skip
    return KafkaPrograms(_java(environment, which, version_of), lib, version)


def server_version(lib: Path) -> str | None:
    """The version of the Kafka server whose jar lies in the directory; None without one."""
    found = (_SERVER_JAR.fullmatch(path.name) for path in sorted(lib.glob("kafka_*.jar")))
    return next((match["version"] for match in found if match), None)


def _java(
    environment: Mapping[str, str], which: Callable[[str], str | None], version_of: VersionOf
) -> Path:
    homes = [environment[name] for name in (JAVA_SETTING, "JAVA_HOME") if environment.get(name)]
    on_path = which("java")
    programs = [Path(home) / "bin/java" for home in homes] + ([Path(on_path)] if on_path else [])
    for program in programs:
        if (version_of(program) or 0) >= VERSION_MIN:
            return program
    raise BinaryNotFound(
        f"no Java runtime of version {VERSION_MIN} or newer for Kafka found",
        remedy="install one and set JAVA_HOME", program="java",
    )  # fmt: skip
