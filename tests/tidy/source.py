"""What the project's own rules look at: its files, without what tools leave behind."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("libs", "services", "tests", "docs", "deploy", "bench", ".ci")
_LEFT_BEHIND = {".git", "__pycache__", ".cache", ".hypothesis", ".pytest_cache", "out"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A text file; `path` is relative to the root, with forward slashes."""

    path: str
    text: str

    @property
    def line_count(self) -> int:
        return self.text.count("\n")

    def tree(self) -> ast.Module:
        """Shared: to be read."""
        return _parsed(self.text, self.path)


@cache
def _parsed(text: str, path: str) -> ast.Module:
    return ast.parse(text, path)


def project_files(root: Path = ROOT) -> Iterator[SourceFile]:
    """Every text file of the project, sorted by path."""
    paths = [path for path in root.iterdir() if path.is_file()]
    for folder in FOLDERS:
        paths += [path for path in (root / folder).rglob("*") if path.is_file()]
    for path in sorted(paths):
        if _LEFT_BEHIND.isdisjoint(path.relative_to(root).parts):
            try:
                yield SourceFile(path.relative_to(root).as_posix(), path.read_text())
            except UnicodeDecodeError:
                continue  # a binary golden file is not source text


@cache
def python_files() -> Sequence[SourceFile]:
    return [file for file in project_files() if file.path.endswith(".py")]


def documents() -> list[SourceFile]:
    return [file for file in project_files() if file.path.endswith(".md")]
