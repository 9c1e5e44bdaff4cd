"""How the tests are spread over the processes of a run, so that no processor waits.

Tests that use real servers mostly wait, simulations and unit tests only compute. Each process takes
the next test of one list, so the list mixes the two: while one process waits, another computes. The
longest tests come first, so that no process ends long after the others; the unit tests, which are
short, fill up the end.

Tests that share a fixture of their module run in one process and thus start it once.
"""

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

WAITING = ("tests/integration/", "tests/conformance/")
COMPUTING = ("tests/simulation/",)
LONGEST = (
    "tests/integration/spark/test_spark.py",
    "tests/integration/test_documents.py",
    "tests/integration/test_up_command.py",
    "tests/integration/client_commands/test_http_commands.py",
    "tests/integration/test_cluster_members.py",
    "tests/integration/controller/test_buckets.py",
    "tests/integration/client_commands/test_group_commands.py",
    "tests/integration/segstore/test_replicated_log.py",
)
"""As `pytest --durations=20` showed them when this was last looked up: it only saves time."""
_SHARED = {"class", "module", "package"}

T = TypeVar("T")


def group_those_that_share(items: Iterable[pytest.Item]) -> None:
    """Have tests that share a fixture of their module in one process, as `xdist_group` does."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None and _shares(item):
            item.add_marker(pytest.mark.xdist_group(_path_of(item)))


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """All of the tests, in the order in which the processes of a run shall take them."""
    waiting = [item for item in items if _path_of(item).startswith(WAITING)]
    computing = [item for item in items if _path_of(item).startswith(COMPUTING)]
    placed = {*waiting, *computing}
    rest = [item for item in items if item not in placed]
    return mixed(sorted(waiting, key=_rank), computing) + rest


def mixed(first: Sequence[T], second: Sequence[T]) -> list[T]:
    """Both as one, each in its own order and spread evenly over the whole length."""
    placed = [
        (index / len(one), found) for one in (first, second) for index, found in enumerate(one)
    ]
    return [found for _, found in sorted(placed, key=lambda pair: pair[0])]


def is_distributed() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


def _rank(item: pytest.Item) -> int:
    path = _path_of(item)
    return LONGEST.index(path) if path in LONGEST else len(LONGEST)


def _path_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _shares(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    known = item._fixtureinfo.name2fixturedefs
    return any(defs and defs[-1].scope in _SHARED for defs in known.values())
