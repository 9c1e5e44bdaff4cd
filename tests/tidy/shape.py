"""Sizes, parameters and names of Python code. What is over a limit today may only shrink."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from tidy.source import SourceFile

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
PRODUCT_FILE_LINES_MAX = 450
"""For the parts themselves, so that a change finds room in the file that it enters."""
POSITIONAL_MAX = 5
BANNED_MODULES = {"utils", "util", "helpers", "helper", "manager", "impl", "factory", "misc"}
BANNED_CLASS = re.compile(r"(Manager|Impl|Factory|Helpers?|Utils?)$|^Base[A-Z]|Base$")

FAN_OUT_ITSELF = {"libs/common/src/anabranch/common/workflow/bounded.py"}
SERVING = {"serve", "serving"}
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp,
          ast.GeneratorExp)  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(file: SourceFile) -> Iterator[tuple[str, Function]]:
    """Every function with its dotted name inside the file, inner ones included."""
    yield from _functions_in(file.tree(), "")


def oversizes(files: Iterable[SourceFile]) -> dict[str, int]:
    """Lines of every file and function that is over its limit, by ``path`` or ``path::name``."""
    found: dict[str, int] = {}
    for file in files:
        if file.line_count > lines_max(file.path):
            found[file.path] = file.line_count
        for name, node in functions(file):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found[f"{file.path}::{name}"] = lines
    return found


def lines_max(path: str) -> int:
    """How many lines the file may have."""
    product = path.startswith(("libs/", "services/"))
    return PRODUCT_FILE_LINES_MAX if product else FILE_LINES_MAX


def ratchet(found: Mapping[str, int], allowed: Mapping[str, int]) -> list[str]:
    """What is wrong: growth, new exceptions, and exceptions that are larger than needed."""
    wrong = []
    for name, lines in found.items():
        if lines > allowed.get(name, 0):
            wrong.append(f"{name} has {lines} lines: split it")
    for name, lines in allowed.items():
        if found.get(name, 0) < lines:
            wrong.append(f"{name} has shrunk: lower its exception")
    return sorted(wrong)


def unlisted_or_unneeded(found: Iterable[str], listed: Iterable[str]) -> list[str]:
    """Findings that are no listed exception, and exceptions that nothing needs any more."""
    there, allowed = set(found), set(listed)
    return sorted(there - allowed) + [f"{name}: drop its exception" for name in allowed - there]


def long_parameter_lists(files: Iterable[SourceFile]) -> list[str]:
    """Functions that take more than five positional parameters, `self` and `cls` not counted."""
    return [
        f"{file.path}::{name}"
        for file in files
        for name, node in functions(file)
        if _positional_count(node) > POSITIONAL_MAX
    ]


def banned_names(files: Iterable[SourceFile]) -> list[str]:
    """Modules and classes with names that say nothing."""
    wrong = []
    for file in files:
        words = file.path.removesuffix(".py").split("/")
        wrong += [f"{file.path}: {word}" for word in words if word in BANNED_MODULES]
        wrong += [
            f"{file.path}: {node.name}"
            for node in ast.walk(file.tree())
            if isinstance(node, ast.ClassDef) and BANNED_CLASS.search(node.name)
        ]
    return wrong


def starts_from_anywhere(files: Iterable[SourceFile]) -> list[str]:
    """Starts of Python with ``-m`` that lack ``-P``: they import what lies in the directory where
    the parent happens to run."""
    wrong = []
    for file in files:
        for node in ast.walk(file.tree()):
            words = [ast.unparse(word) for word in _words_of(node)]
            wrong += [
                f"{file.path}: {' '.join(words)}"
                for before, word in pairwise(words)
                if before == "sys.executable" and word == "'-m'"
            ]
    return wrong


def catches_everything(files: Iterable[SourceFile]) -> list[str]:
    """Handlers that catch every error in order to carry on: they do not end in a bare `raise`."""
    return [
        f"{file.path}::{name}"
        for file in files
        for name, node in functions(file)
        for handler in _own_handlers(node)
        if _is_broad(handler.type) and not _ends_in_raise(handler)
    ]


def bare_fan_outs(files: Iterable[SourceFile]) -> list[str]:
    """Functions that start tasks of a TaskGroup in a loop, where `for_each` belongs: an error of
    ours would leave them inside an ExceptionGroup, which nobody catches by its name.

    `serve` may: its tasks run until it is cancelled, and what ends them ends the process.
    """
    return [
        f"{file.path}::{name}"
        for file in files
        if file.path.startswith(("libs/", "services/")) and file.path not in FAN_OUT_ITSELF
        for name, node in functions(file)
        if node.name not in SERVING and any(map(_starts_tasks_in_a_loop, ast.walk(node)))
    ]


def modules_without_docstring(files: Iterable[SourceFile]) -> list[str]:
    """Modules that hold code and do not say what for."""
    return [file.path for file in files if file.text.strip() and not ast.get_docstring(file.tree())]


def _words_of(node: ast.AST) -> Sequence[ast.expr]:
    """The words of what may be a command: a call's arguments, a list, a tuple."""
    match node:
        case ast.Call():
            return node.args
        case ast.List() | ast.Tuple():
            return node.elts
    return ()


def _own_handlers(node: Function) -> Iterator[ast.ExceptHandler]:
    """Those of the function itself, not of functions inside it."""
    pending: list[ast.AST] = list(node.body)
    while pending:
        found = pending.pop()
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(found, ast.ExceptHandler):
            yield found
        pending.extend(ast.iter_child_nodes(found))


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(one) for one in kind.elts)
    return kind is None or (
        isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")
    )


def _ends_in_raise(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def _starts_tasks_in_a_loop(node: ast.AST) -> bool:
    """Whether it is an ``async with asyncio.TaskGroup() as x`` with ``x.create_task`` in a loop."""
    if not isinstance(node, ast.AsyncWith):
        return False
    groups = {
        item.optional_vars.id
        for item in node.items
        if isinstance(item.optional_vars, ast.Name) and "TaskGroup" in ast.unparse(item)
    }
    return any(
        isinstance(call, ast.Attribute)
        and call.attr == "create_task"
        and isinstance(call.value, ast.Name)
        and call.value.id in groups
        for statement in node.body
        for loop in ast.walk(statement)
        if isinstance(loop, _LOOPS)
        for call in ast.walk(loop)
    )


def _positional_count(node: Function) -> int:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return len(names[1:] if names[:1] in (["self"], ["cls"]) else names)


def _functions_in(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from _functions_in(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions_in(child, f"{prefix}{child.name}.")
        else:
            yield from _functions_in(child, prefix)
