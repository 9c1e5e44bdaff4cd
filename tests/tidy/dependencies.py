"""Whether every part declares what it imports."""

import ast
import sys
from collections.abc import Iterable, Mapping, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tidy.source import SourceFile

OWN_NAMESPACE = "anabranch"


def undeclared_imports(
    part: str,
    files: Iterable[SourceFile],
    declared: Iterable[str],
    distributions: Mapping[str, Sequence[str]],
) -> list[str]:
    """Distributions that the files of `part` import and its declaration does not name.

    `declared` are requirement texts; `distributions` maps top-level modules to those that
    provide them. Of our namespace, the second name is the part.
    """
    known = {canonicalize_name(Requirement(text).name) for text in declared}
    wrong = set()
    for file in files:
        for module in _imported(file.tree()):
            top, _, rest = module.partition(".")
            if top == OWN_NAMESPACE:
                needed = {f"{OWN_NAMESPACE}-{rest.partition('.')[0]}"} - {f"{OWN_NAMESPACE}-{part}"}
            elif top in sys.stdlib_module_names:
                continue
            else:
                needed = {canonicalize_name(name) for name in distributions.get(top, [top])}
            if needed and not needed & known:
                wrong.add(f"{part} imports {module} and does not declare {sorted(needed)[0]}")
    return sorted(wrong)


def _imported(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
