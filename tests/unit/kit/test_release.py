"""What a release trial takes for an interpreter, for a sound wheel and for a failure."""

import sys
import zipfile
from pathlib import Path

import pytest

from kit.release.__main__ import MISSING, table
from kit.release.build import folders_of, mistakes_in
from kit.release.pythons import Python, find_pythons
from kit.release.steps import StepFailed, clean_environment, perform, shown
from kit.release.trial import COLUMNS, FAILED, SKIPPED, Environment, Step, take
from tidy.source import ROOT


def interpreter(path: Path, version: str, executable: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho {version} {executable}\n")
    path.chmod(0o755)


def test_an_interpreter_is_found_where_pyenv_keeps_it_and_a_missing_one_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    kept = tmp_path / ".pyenv/versions"
    interpreter(kept / "3.12.1/bin/python", "3.12.1", "/kept/3.12.1")
    interpreter(kept / "3.13.0/bin/python", "3.1.30", "/another/version")

    assert find_pythons(("3.12", "3.13", "3.14"), tmp_path) == [
        Python("3.12.1", Path("/kept/3.12.1")),
        Python("3.13", None),
        Python("3.14", None),
    ]


def test_a_shim_that_cannot_be_started_is_no_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "shims" / "python3.12"
    interpreter(shim, "3.12.1", "/kept")
    shim.write_text("#!/bin/sh\nexit 127\n")
    monkeypatch.setenv("PATH", str(shim.parent))

    assert find_pythons(("3.12",), tmp_path) == [Python("3.12", None)]


@pytest.mark.parametrize(
    ("name", "files", "mistakes"),
    [
        ("anabranch_client", ["a/py.typed", "a.dist-info/licenses/LICENSE"], 0),
        ("anabranch", ["a.dist-info/licenses/LICENSE"], 0),
        ("anabranch_client", ["a.dist-info/licenses/LICENSE"], 1),
        ("anabranch_client", ["a/py.typed"], 1),
        (
            "anabranch_client",
            ["a/py.typed", "a.dist-info/licenses/LICENSE", "a/__pycache__/b.pyc", "tests/t.py"],
            2,
        ),
    ],
)
def test_a_wheel_needs_licence_and_types_and_nothing_stray(
    tmp_path: Path, name: str, files: list[str], mistakes: int
) -> None:
    wheel = tmp_path / f"{name}-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in files:
            archive.writestr(file, "")

    assert len(mistakes_in(wheel)) == mistakes


def test_all_distributions_are_built() -> None:
    assert {folder.name for folder in folders_of(ROOT)} >= {"anabranch", "client", "segstore"}


def test_nothing_of_the_repository_reaches_a_trial() -> None:
    assert clean_environment(
        {"PATH": "/bin", "PYTHONPATH": "src", "ANABRANCH_HTTP": "x", "VIRTUAL_ENV": "v"}
    ) == {"PATH": "/bin"}


def test_a_command_that_fails_shows_what_it_printed_but_not_the_program_that_it_was_given(
    tmp_path: Path,
) -> None:
    with pytest.raises(StepFailed, match=r"-c … ended with 3:\n    half"):
        perform((sys.executable, "-P", "-c", "print('half')\nraise SystemExit(3)"), tmp_path)
    assert shown(("python", "-c", "one\ntwo")) == "python -c …"


def test_the_steps_behind_a_failed_one_are_left_out(tmp_path: Path) -> None:
    def fail(_environment: Environment) -> str:
        raise StepFailed("no wheel")

    steps = [Step("install", lambda _: "3 packages"), Step("import", fail), Step("use", fail)]
    reports: list[str] = []

    found = take(steps, lambda: Environment.__new__(Environment), reports.append)

    assert found == {"install": "3 packages", "import": FAILED, "use": SKIPPED}
    assert reports == ["import: no wheel"]


def test_an_environment_that_cannot_be_made_fails_its_first_step() -> None:
    def refuse() -> Environment:
        raise StepFailed("no venv")

    found = take([Step("install", lambda _: ""), Step("use", lambda _: "")], refuse, print)

    assert found == {"install": FAILED, "use": SKIPPED}


def test_the_table_has_a_line_for_every_interpreter_also_for_a_missing_one() -> None:
    lines = table({"3.12.1": dict.fromkeys(COLUMNS, "ok"), "3.14": {}})

    assert lines[0].split()[0] == "python"
    assert lines[1].split() == ["3.12.1", *["ok"] * len(COLUMNS)]
    assert lines[2] == f"3.14    {MISSING}"
