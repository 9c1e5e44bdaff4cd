"""The table of faults names tests that exist, for every class that it promises."""

import re

from tidy.source import ROOT

CLASSES = [*range(1, 22), 24, 25, 26, 27, 28, *range(30, 57)]
_ROW = re.compile(r"^\| (\d+) \|(.*)\|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/.]+)(?:::(\w+))?`")
ROWS = {int(number): row for number, row in _ROW.findall((ROOT / "docs/faults.md").read_text())}


def test_every_class_has_a_row_with_a_test_of_its_own() -> None:
    assert list(ROWS) == CLASSES
    assert [number for number, row in ROWS.items() if not _TEST.search(row)] == []


def test_every_test_that_a_row_names_exists() -> None:
    wrong = []
    for number, row in ROWS.items():
        for path, function in _TEST.findall(row):
            place = ROOT / path
            if not place.exists() or (function and f"def {function}(" not in place.read_text()):
                wrong.append(f"{number}: {path} {function}")
    assert wrong == []
