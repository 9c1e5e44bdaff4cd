"""How `anabranch pipeline` starts the programs of the Spark package."""

import sys
from pathlib import Path

import pytest

from anabranch.cli.commands import pipelines
from anabranch.cli.commands.pipelines import check_installed, environment_of, list_all, listed, run
from anabranch.cli.contexts import Context
from anabranch.cli.session import ClusterAddress
from anabranch.cli.target import Target
from anabranch.common.errors import BinaryNotFound, InvalidRequest

HERE = ClusterAddress(nats="nats://here")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the Spark package, which `python -m` finds."""
    monkeypatch.setattr(pipelines, "PROGRAM", "stand_in")
    monkeypatch.setattr(pipelines, "NEEDED", ())
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "stand_in.py"


def test_the_pipeline_learns_the_cluster_by_one_variable() -> None:
    before = {"ANABRANCH_CONTEXT": "other", "ANABRANCH_HTTP": "http://x", "PATH": "/bin"}
    found = environment_of(Target(Context(data_dir="/srv/a"), "option"), before)
    assert found == {
        "PATH": "/bin", "PYTHONSAFEPATH": "1", "ANABRANCH_NATS_URL": "/srv/a/endpoints.json",
    }  # fmt: skip


def test_the_address_of_a_gateway_is_not_handed_on() -> None:
    found = environment_of(Target(Context(http="http://x"), "option"), {})
    assert "ANABRANCH_NATS_URL" not in found


def test_without_the_package_the_error_says_how_to_install_it() -> None:
    with pytest.raises(BinaryNotFound) as raised:
        check_installed(("sys", "no_such_module_here"))
    assert "anabranch-spark" in raised.value.remedy
    assert raised.value.fields["missing"] == "no_such_module_here"


def test_the_list_is_the_catalogue_of_the_program(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text("""print('{"name": "one", "module": "m", "help": "First."}')""")
    list_all()
    assert capsys.readouterr().out.split("\n")[1].split() == ["one", "First."]
    assert list(listed("")) == []


def test_a_pipeline_gets_its_arguments_and_the_cluster_and_gives_its_exit_code(
    program: Path, tmp_path: Path
) -> None:
    program.write_text(
        "import os, pathlib, sys\n"
        "told = [*sys.argv[1:], os.environ['ANABRANCH_NATS_URL']]\n"
        f"pathlib.Path({str(tmp_path / 'told')!r}).write_text(' '.join(told))\n"
        "sys.exit(3)\n"
    )
    assert run("archive", "--stream", "a/b", cluster=HERE) == 3
    assert (tmp_path / "told").read_text() == "archive --stream a/b nats://here"


def test_a_pipeline_that_a_signal_ends_gives_the_exit_code_of_a_shell(program: Path) -> None:
    program.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert run("archive", cluster=HERE) == 137


def test_the_name_of_the_pipeline_stands_first() -> None:
    with pytest.raises(InvalidRequest, match="stands before its arguments"):
        run("--stream", "a/b", cluster=HERE)


def test_the_interpreter_of_the_command_runs_the_pipeline(program: Path, tmp_path: Path) -> None:
    program.write_text(
        f"import pathlib, sys\npathlib.Path({str(tmp_path / 'told')!r}).write_text(sys.executable)"
    )
    assert run("archive", cluster=HERE) == 0
    assert (tmp_path / "told").read_text() == sys.executable
