"""The prose of documents and packages: what counts, and that no figure rises."""

import json
from functools import cache

import pytest

from tidy import prose
from tidy.source import SourceFile, documents, python_files

SHELL = "services/segstore/src/anabranch/segstore/shell/memory/cache.py"


@cache
def measured() -> dict[str, float]:
    return prose.figures(prose.measured(python_files(), documents()))


def test_no_document_or_package_reads_worse_than_permitted() -> None:
    permitted = json.loads(prose.PATH.read_text())

    assert prose.wrong_figures(measured(), permitted) == [], (
        "make prose ARGS=--write lowers figures; ARGS=--moved follows modules to other packages"
    )


def test_all_products_are_measured() -> None:
    names = {name for name in measured() if name.endswith("/*")}
    parts = ("cli", "client", "common", "controller", "gateway", "segstore", "spark")

    assert {f"{part}/*" for part in parts} <= names
    assert {"README.md", "docs/operations.md", "segstore/shell"} <= measured().keys()


@pytest.mark.parametrize(
    ("sentence", "headless"),
    [
        ("Whoever opens the log fences the others.", ["whoever"]),
        ("It keeps what was read, and nobody waits.", ["what", "nobody"]),
        ("Who stops says so.", ["who"]),
        ("A store who stops says so.", ["who"]),
        ("The operator who restarts it waits.", []),
        ("What does a reader see?", []),
        ("Is there anybody?", ["anybody"]),
        ("The caller is told, and was told before.", ["is told", "was told"]),
        ("Its size is that of a block.", ["that of"]),
        ("A reader retries somewhat later, whole.", []),
    ],
)
def test_headless_words_are_found(sentence: str, headless: list[str]) -> None:
    assert prose.headless_words(sentence) == headless


@pytest.mark.parametrize(
    ("text", "words", "headless"),
    [
        ("Keep what is read.\nWhat now?", 6, 1),
        ("Why?\n\n- what remains\n- what goes", 5, 2),
        ("# What remains\n\nIs it so?", 5, 1),
        ("| what | is it so? |", 4, 1),
        ("Before.\n\n```python run\nwhat = nobody\n```\n\nAfter.", 2, 0),
        ("The field `what` and [a link](who/what.md)", 6, 0),
        ("A request is\ntold that\nof a store", 8, 2),
        ("", 0, 0),
    ],
)
def test_words_of_a_text_are_counted_without_its_code(text: str, words: int, headless: int) -> None:
    assert prose.count(text) == prose.Count(words, headless)


def test_figures_are_per_thousand_words() -> None:
    assert prose.Count(words=500, headless=2).per_thousand == 4
    assert prose.Count().per_thousand == 0


def test_the_prose_of_a_module_is_its_comments_and_longer_literals() -> None:
    module = '''"""What a module is."""
# A comment that
# goes on.
x = 1  # beside code
KEY = "not prose"


class A:
    """A class of things."""

    field: int
    """Of a field: bytes."""

    def f(self) -> None:
        raise ValueError(f"the segment {self.field} is " "sealed", "key")
'''
    texts = list(prose.texts_of(SourceFile(SHELL, module)))

    assert texts == [
        "A comment that\ngoes on.\nbeside code",
        "What a module is.",
        "A class of things.",
        "Of a field: bytes.",
        "the segment value is sealed",
    ]


def test_packages_are_keyed_by_two_levels_below_a_distribution() -> None:
    assert prose.package_of(SHELL) == "segstore/shell"
    assert prose.package_of("libs/client/src/anabranch/client/writer.py") == "client"
    assert prose.package_of("tests/kit/clock.py") is None
    assert prose.package_of("bench/run.py") is None


def test_counts_are_of_pages_packages_and_distributions() -> None:
    files = [
        SourceFile(SHELL, '"""What is kept."""'),
        SourceFile(SHELL.replace("memory/", ""), '"""Evicts cached blocks."""'),
        SourceFile(
            "services/segstore/src/anabranch/segstore/settings.py", '"""Whoever sets it."""'
        ),
        SourceFile("tests/kit/x.py", '"""Nobody looks here."""'),
    ]

    assert prose.measured(files, [SourceFile("README.md", "Who reads it")]) == {
        "README.md": prose.Count(3, 1),
        "segstore/shell": prose.Count(6, 1),
        "segstore": prose.Count(3, 1),
        "segstore/*": prose.Count(9, 2),
    }


@pytest.mark.parametrize(
    ("found", "permitted", "words"),
    [
        ({"a": 2.0}, {}, []),
        ({"a": 2.1}, {}, ["a has 2.1", "permitted are 2"]),
        ({"a": 9.1}, {"a": 9}, ["a has 9.1", "permitted are 9"]),
        ({"a": 9.0}, {"a": 9}, []),
        ({"a": 7.5}, {"a": 9}, []),
        ({"a": 7.4}, {"a": 9}, ["a has 7.4", "lower the permitted 9"]),
        ({"a": 0.0}, {"a": 3}, []),
        ({"a": 0.0}, {"a": 4}, ["a has 0.0", "lower the permitted 4"]),
        ({"a": 0.0}, {"a": 2}, ["lower the permitted 2"]),
        ({}, {"a": 3}, ["lower the permitted 3"]),
    ],
)
def test_a_figure_may_not_rise_and_a_permitted_one_follows_it_down(
    found: dict[str, float], permitted: dict[str, int], words: list[str]
) -> None:
    wrong = prose.wrong_figures(found, permitted)

    assert len(wrong) == (1 if words else 0)
    assert all(word in wrong[0] for word in words)


@pytest.mark.parametrize(
    ("found", "permitted", "after"),
    [
        ({"a": 7.4}, {"a": 9}, {"a": 8}),
        ({"a": 9.4}, {"a": 9}, {"a": 9}),
        ({"a": 2.0}, {"a": 9}, {}),
        ({}, {"a": 9}, {}),
        ({"a/b": 7.4}, {}, {}),
        ({"docs/a.md": 7.4}, {"docs/a.md": 9}, {"docs/a.md": 8}),
    ],
)
def test_writing_only_lowers_the_permitted_figures(
    found: dict[str, float], permitted: dict[str, int], after: dict[str, int]
) -> None:
    assert prose.lowered(found, permitted) == after


@pytest.mark.parametrize(
    ("found", "permitted", "after"),
    [
        ({"a/b": 7.4}, {}, {"a/b": 8}),
        ({"a/b": 9.4, "a": 3.1}, {"a/b": 7, "a": 9}, {"a": 4, "a/b": 10}),
        ({"a/*": 9.4}, {"a/*": 9}, {"a/*": 9}),
        ({"a/*": 7.4}, {}, {}),
        ({"docs/a.md": 7.4}, {}, {}),
        ({"docs/a.md": 9.4}, {"docs/a.md": 9}, {"docs/a.md": 9}),
    ],
)
def test_moved_modules_take_their_figures_along_within_their_distribution(
    found: dict[str, float], permitted: dict[str, int], after: dict[str, int]
) -> None:
    assert prose.lowered(found, permitted, moved=True) == after
