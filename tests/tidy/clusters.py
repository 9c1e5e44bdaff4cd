"""How many tests start a cluster of their own, which costs more than most other tests together."""

import ast
from collections.abc import Iterable, Mapping

from tidy.shape import Function
from tidy.source import SourceFile

STARTS = {"embedded_cluster", "running_cluster", "run_chaos"}
SHARED = {"class", "module", "package", "session"}


def cluster_starts(files: Iterable[SourceFile]) -> dict[str, int]:
    """How many clusters each file's tests start, as far as the file itself shows it.

    A test starts one if it, or a function or fixture of the file that it names, calls a starter.
    All tests that come to one by way of the same shared fixture start it once.
    """
    found = {file.path: _starts_in(file.tree()) for file in files if "/test_" in file.path}
    return {path: count for path, count in found.items() if count}


def growth(found: Mapping[str, int], allowed: Mapping[str, int]) -> list[str]:
    """What is wrong: files whose tests start more clusters than before, or fewer than is noted."""
    wrong = []
    for path in sorted({*found, *allowed}):
        now, before = found.get(path, 0), allowed.get(path, 0)
        if now > before:
            wrong.append(f"{path} starts {now} clusters, not {before}: share one")
        if now < before:
            wrong.append(f"{path} starts only {now} clusters: lower its exception")
    return wrong


def _starts_in(tree: ast.Module) -> int:
    functions = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    starters = {_starter(name, functions, set()) for name in functions if name.startswith("test_")}
    return len(starters - {""})


def _starter(name: str, functions: Mapping[str, Function], seen: set[str]) -> str:
    """The function itself, or the shared fixture by which it comes to a cluster; empty: to none."""
    seen.add(name)
    used = _names_in(functions[name])
    if not STARTS.isdisjoint(used):
        return name
    for other in sorted(used & functions.keys() - seen):
        found = _starter(other, functions, seen)
        if found:
            return found if _is_shared(functions[found]) else name
    return ""


def _names_in(function: Function) -> set[str]:
    arguments = {argument.arg for argument in ast.walk(function) if isinstance(argument, ast.arg)}
    names = {name.id for name in ast.walk(function) if isinstance(name, ast.Name)}
    return arguments | names


def _is_shared(function: Function) -> bool:
    """Whether it is a fixture that lives longer than one test."""
    return any(
        keyword.arg == "scope" and ast.literal_eval(keyword.value) in SHARED
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
    )
