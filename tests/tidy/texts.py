"""What documents may say: links, targets and commands that exist; the words of the glossary."""

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from tidy.source import SourceFile

_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
_SPAN = re.compile(r"`([^`\n]+)`")
_FENCE = re.compile(r"^```[^`\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PATH_WORD = re.compile(r"^(?:libs|services|tests|docs|deploy|\.ci)/[\w./{},*<>-]+$")
# Written so that this file does not hold what it looks for.
_MACHINE_PATHS = re.compile(
    "|".join([r"/ho" r"me/\w", r"/ro" r"ot/\w", r"/Us" r"ers/\w", r"/wo" r"rk/\w"])
)
_REGISTRIES = re.compile(
    "|".join(["py" r"pi\.org", "python" r"hosted\.org", "index" r"-url", "registry" r"\.npm"])
)
_AVOIDED = re.compile(r"not \*([^*]+)\*")


def code_lines(file: SourceFile) -> Iterator[str]:
    """The code in a document: inline spans, and the lines of fenced blocks without comments."""
    for block in _FENCE.findall(file.text):
        for line in block.splitlines():
            yield line.split("#", 1)[0].strip().removeprefix("$ ")
    for span in _SPAN.findall(_FENCE.sub("", file.text)):
        yield span.strip()


def broken_links(file: SourceFile, root: Path) -> list[str]:
    """Relative links, and paths in code, that lead nowhere."""
    folder = (root / file.path).parent
    wrong = [
        f"{file.path}: link to {target}"
        for target in _LINK.findall(file.text)
        if "://" not in target and not (folder / target).exists()
    ]
    wrong += [
        f"{file.path}: path {word}"
        for word in code_lines(file)
        if _PATH_WORD.match(word) and not _matches_a_path(word, root)
    ]
    return wrong


def unknown_targets(file: SourceFile, targets: Collection[str]) -> list[str]:
    """`make` targets named in a document that the Makefile does not have."""
    named = [line.split() for line in code_lines(file) if line.startswith("make ")]
    return [
        f"{file.path}: make {words[1]}"
        for words in named
        if re.fullmatch(r"[a-z][a-z0-9-]*", words[1]) and words[1] not in targets
    ]


def makefile_targets(text: str) -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):", text, re.MULTILINE))


def unknown_commands(file: SourceFile, commands: Collection[str]) -> list[str]:
    """`anabranch …` commands in a document that do not exist. `commands`: "up", "scope create"."""
    wrong = []
    for line in code_lines(file):
        for part in re.split(r"[|;&]+", line):
            words = part.split()
            while words and (words[0] == "." or words[0].endswith("/anabranch")):
                words[0] = "anabranch"
            if len(words) < 2 or words[0] != "anabranch" or not words[1].isalpha():
                continue
            if words[1] not in commands and " ".join(words[1:3]) not in commands:
                wrong.append(f"{file.path}: anabranch {' '.join(words[1:3])}")
    return wrong


def machine_paths(file: SourceFile) -> list[str]:
    """Paths that exist on one machine only."""
    return [f"{file.path}: {found}" for found in _MACHINE_PATHS.findall(file.text)]


def registry_names(file: SourceFile) -> list[str]:
    """Addresses of package registries, which belong to whoever installs."""
    return [f"{file.path}: {found}" for found in _REGISTRIES.findall(file.text)]


def avoided_words(glossary: str) -> set[str]:
    """What the glossary says not to say, written there as: not *word*."""
    return {word for found in _AVOIDED.findall(glossary) for word in found.split(", ")}


def uses_of_avoided_words(file: SourceFile, avoided: Iterable[str]) -> list[str]:
    prose = _SPAN.sub("", _FENCE.sub("", file.text))
    return [
        f"{file.path}: {word}"
        for word in avoided
        if re.search(rf"\b{re.escape(word)}\b", prose, re.IGNORECASE)
    ]


def _matches_a_path(word: str, root: Path) -> bool:
    """Whether a path with ``*``, ``<name>`` or ``{a,b}`` in it names something that exists."""
    pattern = re.sub(r"<[^>]*>|\*+", "*", word).rstrip("/")
    return all(any(root.glob(one)) for one in _expanded(pattern))


def _expanded(pattern: str) -> list[str]:
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    return [
        whole
        for choice in found[1].split(",")
        for whole in _expanded(pattern[: found.start()] + choice + pattern[found.end() :])
    ]
