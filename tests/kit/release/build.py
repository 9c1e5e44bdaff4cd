"""Builds every distribution: its sdist, and its wheel out of that sdist.

A wheel that is built from the sdist has no file that only the repository has. Each is then checked:
twine renders its README as a package index would, and it carries the licence and its types.
"""

import shutil
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

from kit.release.steps import StepFailed, perform

META = "anabranch-"
"""How the file names of the wheel without a package begin: it has no types to mark."""


def folders_of(root: Path) -> list[Path]:
    """The folders of the distributions, in the order of their paths."""
    return sorted(path.parent for path in root.glob("*/*/pyproject.toml"))


def build_all(root: Path, target: Path) -> list[Path]:
    """Build into `target`, which is emptied before; returns the wheels. Raises StepFailed."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    wheels = [_build(folder, target) for folder in folders_of(root)]
    mistakes = [mistake for wheel in wheels for mistake in mistakes_in(wheel)]
    if mistakes:
        raise StepFailed("\n".join(mistakes))
    return wheels


def _build(folder: Path, target: Path) -> Path:
    _hatch("sdist", folder, target)
    [sdist] = [path for path in target.glob("*.tar.gz") if not _has_wheel(path, target)]
    with tempfile.TemporaryDirectory(prefix="anabranch-sdist-") as directory:
        with tarfile.open(sdist) as archive:
            archive.extractall(directory, filter="data")
        [unpacked] = Path(directory).iterdir()
        _hatch("wheel", unpacked, target)
    [wheel] = target.glob(f"{sdist.name.removesuffix('.tar.gz')}-*.whl")
    return wheel


def _hatch(kind: str, folder: Path, target: Path) -> None:
    build = (sys.executable, "-P", "-m", "hatchling", "build", "--target", kind)
    perform((*build, "--directory", target), folder)


def _has_wheel(sdist: Path, target: Path) -> bool:
    return any(target.glob(f"{sdist.name.removesuffix('.tar.gz')}-*.whl"))


def mistakes_in(wheel: Path) -> list[str]:
    """Files that the wheel lacks, or that it must not have."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    wrong = []
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        wrong.append(f"{wheel.name} has no licence")
    if not wheel.name.startswith(META) and not any(name.endswith("/py.typed") for name in names):
        wrong.append(f"{wheel.name} has no mark of its types (py.typed)")
    strays = [name for name in names if "__pycache__" in name or name.startswith("tests/")]
    return wrong + [f"{wheel.name} has {name}" for name in strays]


def check_all(files: Sequence[Path], tools: Path) -> None:
    """Check names, versions and READMEs with twine, installed in `tools`. Raises StepFailed."""
    venv.create(tools, clear=True, with_pip=True)
    python = tools / "bin" / "python"
    perform((python, "-m", "pip", "install", "--quiet", "twine"), tools)
    perform((python, "-m", "twine", "check", "--strict", *files), tools)
