"""Measures how plainly the project's prose is written, and lets no figure rise.

The measure is the number of headless words per 1,000 words. A headless word stands where the thing
that acts should be named: "whoever opens it" instead of "the store that opens it". Counted are

- *who*, *whom* and *whoever*, unless the word before names a person ("an operator who …");
- *what* and *whatever*, unless the sentence ends with a question mark;
- *nobody*, *anybody*, *is told* and its tenses, and *that of*.

The words of a package are its docstrings, its comments and its string literals of three words or
more: error messages, log lines, help texts and descriptions. A document counts without its code.

Every document and package stays below `GOAL`. `prose.json` permits more to those that were above
it when the measure began, and to every distribution as a whole ("client/*"). A permitted figure
may only fall: `make prose` prints the table, `make prose ARGS=--write` lowers the permitted
figures. After modules have moved between packages, `make prose ARGS=--moved` takes over the
packages' measured figures; those of documents and distributions bind as before.
"""

import ast
import io
import json
import math
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidy.source import ROOT, SourceFile, documents, python_files

PATH = ROOT / "tests/tidy/prose.json"
GOAL = 2
MARGIN = 1.5
"""How far a permitted figure may stand above the measured one before it must be lowered."""
LITERAL_WORDS_MIN = 3

_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
_HEADLESS = re.compile(
    r"\b(?:who|whom|whoever|what|whatever|nobody|anybody|(?:is|are|was|were|be|been|being)\s+told"
    r"|that\s+of)\b",
    re.IGNORECASE,
)
_PERSON = re.compile(
    r"\b(?:people|person|users?|operators?|engineers?|developers?|authors?|administrators?)\s+$",
    re.IGNORECASE,
)
_ASKED = {"who", "whom", "what", "whatever", "whoever"}
_SENTENCE_END = re.compile(r"(?<=[.?!:;])\s+|\n\s*\n|\n\s*[-*|#]|\|")
_FENCE = re.compile(r"^[ \t]*```[^`\n]*\n.*?^[ \t]*```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`+)[^`]+\1")
_LINK_TARGET = re.compile(r"\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Count:
    """Words, and the headless ones among them."""

    words: int = 0
    headless: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.words + other.words, self.headless + other.headless)

    @property
    def per_thousand(self) -> float:
        return 1000 * self.headless / self.words if self.words else 0.0


def count(text: str) -> Count:
    """The words of a text in Markdown or of a docstring, without its code."""
    prose = _LINK_TARGET.sub("]", _SPAN.sub("code", _FENCE.sub("\n\n", text)))
    sentences = [one for one in _SENTENCE_END.split(prose) if one]
    return Count(
        sum(len(_WORD.findall(sentence)) for sentence in sentences),
        sum(len(headless_words(sentence)) for sentence in sentences),
    )


def headless_words(sentence: str) -> list[str]:
    """The headless words of one sentence, in lower case."""
    question = sentence.rstrip().endswith("?")
    found = []
    for match in _HEADLESS.finditer(sentence):
        word = " ".join(match[0].lower().split())
        if question and word in _ASKED:
            continue
        if word in ("who", "whom") and _PERSON.search(sentence[: match.start()]):
            continue
        found.append(word)
    return found


def texts_of(file: SourceFile) -> Iterator[str]:
    """The prose in a module: its comments, and string literals of some words."""
    yield from _comments(file.text)
    for literal in _literals(file.tree()):
        if len(_WORD.findall(literal)) >= LITERAL_WORDS_MIN:
            yield literal


def package_of(path: str) -> str | None:
    """`segstore/shell` for a module in any folder below it; none for what is no product."""
    before, found, inside = path.partition("/src/")
    if not found or not before.startswith(("libs/", "services/")):
        return None
    folders = inside.removeprefix("anabranch/").split("/")[:-1]
    return "/".join(folders[:2])


def measured(files: Iterable[SourceFile], pages: Iterable[SourceFile]) -> dict[str, Count]:
    """The count of every document, package and distribution."""
    found: dict[str, Count] = defaultdict(Count)
    for page in pages:
        found[page.path] += count(page.text)
    for file in files:
        package = package_of(file.path)
        if package is None:
            continue
        of_file = sum(map(count, texts_of(file)), Count())
        found[package] += of_file
        found[distribution_of(package)] += of_file
    return dict(found)


def distribution_of(package: str) -> str:
    return f"{package.partition('/')[0]}/*"


def wrong_figures(found: Mapping[str, float], permitted: Mapping[str, int]) -> list[str]:
    """Figures above the permitted one, and permitted ones that are higher than needed."""
    wrong = [
        f"{name} has {figure:.1f} headless words per 1,000, permitted are "
        f"{permitted.get(name, GOAL)}: name the thing that acts"
        for name, figure in found.items()
        if figure > permitted.get(name, GOAL)
    ]
    wrong += [
        f"{name} has {found.get(name, 0):.1f} headless words per 1,000: run "
        f"make prose ARGS=--write to lower the permitted {figure}"
        for name, figure in permitted.items()
        if name not in found or figure <= GOAL or figure > max(GOAL, found[name]) + MARGIN
    ]
    return sorted(wrong)


def lowered(
    found: Mapping[str, float], permitted: Mapping[str, int], *, moved: bool = False
) -> dict[str, int]:
    """The figures permitted from now on. None rises, and none is listed that meets the goal.

    If modules have `moved`, packages get their measured figures, whether these rise or are new.
    """
    after = {}
    for name, figure in sorted(found.items()):
        if figure > GOAL:
            needed = math.ceil(figure)
            if moved and not name.endswith((".md", "/*")):
                after[name] = needed
            elif name in permitted:
                after[name] = min(needed, permitted[name])
    return after


def _comments(text: str) -> Iterator[str]:
    """Comments that follow each other line by line are one text."""
    lines: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if lines and token.start[0] != last + 1:
                yield "\n".join(lines)
                lines = []
            lines.append(token.string.lstrip("#: "))
            last = token.start[0]
    if lines:
        yield "\n".join(lines)


def _literals(node: ast.AST) -> Iterator[str]:
    """String literals; a formatted one is one text, its values are a word each."""
    match node:
        case ast.JoinedStr():
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "value"
                for part in node.values
            )
        case ast.Constant(value=str() as text):
            yield text
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _literals(child)


def figures(counts: Mapping[str, Count]) -> dict[str, float]:
    return {name: one.per_thousand for name, one in counts.items()}


def main(arguments: list[str]) -> None:
    """Print what is measured, and lower what is permitted if asked."""
    counts = measured(python_files(), documents())
    permitted = json.loads(PATH.read_text())
    moved = "--moved" in arguments
    if moved or "--write" in arguments:
        permitted = lowered(figures(counts), permitted, moved=moved)
        PATH.write_text(json.dumps(permitted, indent=2) + "\n")
    print(f"{'per 1,000':>9} {'permitted':>9} {'headless':>8} {'words':>7}")  # noqa: T201
    for name, one in sorted(counts.items()):
        allowed = permitted.get(name, GOAL)
        print(  # noqa: T201
            f"{one.per_thousand:9.1f} {allowed:9} {one.headless:8} {one.words:7}  {name}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
