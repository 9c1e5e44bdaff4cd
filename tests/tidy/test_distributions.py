"""What a reader of a package index sees of our distributions, and what their wheels carry."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tidy.source import ROOT

FOLDERS = sorted(path.parent for path in ROOT.glob("*/*/pyproject.toml"))
PROJECTS: dict[Path, dict[str, Any]] = {
    folder: tomllib.loads((folder / "pyproject.toml").read_text()) for folder in FOLDERS
}
README_WORDS_MIN = 40


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_distribution_has_the_licence_a_readme_of_its_own_and_classifiers(folder: Path) -> None:
    project = PROJECTS[folder]["project"]

    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert project["readme"] == "README.md"
    heading, text = (folder / "README.md").read_text().split("\n", 1)
    assert heading.removeprefix("# ").lower() == project["name"]
    assert len(text.split()) >= README_WORDS_MIN
    assert "](" not in text, "a link would lead out of the distribution"
    assert "Typing :: Typed" in project["classifiers"]


def test_all_distributions_agree_on_their_version_and_their_pythons() -> None:
    projects = [one["project"] for one in PROJECTS.values()]
    [version] = {one["version"] for one in projects}

    assert len({one["requires-python"] for one in projects}) == 1
    assert len({tuple(one["classifiers"]) for one in projects}) == 1
    for one in projects:
        extras = one.get("optional-dependencies", {}).values()
        texts = [*one["dependencies"], *(text for group in extras for text in group)]
        asked = [Requirement(text) for text in texts]
        ours = [each for each in asked if each.name.startswith("anabranch")]
        assert all(
            str(each.specifier) == f"=={version}" for each in ours if each.name != one["name"]
        )


def test_every_package_tells_type_checkers_that_it_has_types() -> None:
    roots = [
        package.parent
        for folder in FOLDERS
        for package in (folder / "src").glob("*/**/__init__.py")
        if not (package.parents[1] / "__init__.py").exists()
    ]

    assert len(roots) >= len(FOLDERS) - 1
    assert [root for root in roots if not (root / "py.typed").exists()] == []
