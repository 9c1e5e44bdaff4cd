"""docs/errors.md: every error with its cause, HTTP status and remedies, as the code has them.

Between its two marks nothing is written by hand. Renew it with ``make errors-doc``.
"""

from collections.abc import Iterator

from anabranch.common.errors import ERRORS_BY_CODE, AnabranchError, Remedy
from anabranch.common.errors.remedy import Door, filled
from anabranch.gateway.http.edge.problem import status_of
from tidy.source import ROOT

PATH = ROOT / "docs/errors.md"
BEGIN = "<!-- errors: written by make errors-doc -->\n"
END = "<!-- end of errors -->\n"
FAMILIES: list[type[AnabranchError]] = AnabranchError.__subclasses__()
"""In the order of the source."""
_NAMES: dict[Door, str] = {"api": "Python", "http": "HTTP", "command": "command"}


class _Places(dict[str, str]):
    """Shows each placeholder by its name."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


_PLACES = _Places(
    stream="{scope}/{stream}",
    group="{scope}/{group}",
    stream_path="/v1/scopes/{scope}/streams/{stream}",
    group_path="/v1/scopes/{scope}/readergroups/{group}",
)


def rendered(text: str) -> str:
    """The document with its errors as the code has them."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert rest, "the document's marks are gone"
    return f"{before}{BEGIN}\n{''.join(_sections())}{END}{after}"


def cause_of(kind: type[AnabranchError]) -> str:
    """The first sentence of the class's own docstring; empty without one."""
    text = " ".join((vars(kind).get("__doc__") or "").split())
    return text.split(". ")[0].rstrip(".")


def family_of(kind: type[AnabranchError]) -> type[AnabranchError]:
    """The family that a kind belongs to; the root belongs to itself."""
    return next((each for each in FAMILIES if issubclass(kind, each)), kind)


def row_of(kind: type[AnabranchError]) -> str:
    """The line of a table."""
    name, status = f"`{kind.code}`<br>{kind.__name__}", status_of(kind("example"))
    return f"| {name} | {status} | {cause_of(kind)} | {_remedies(kind.default_remedy)} |\n"


def _sections() -> Iterator[str]:
    families: list[type[AnabranchError]] = [*FAMILIES, AnabranchError]
    for family in families:
        kinds = [kind for kind in ERRORS_BY_CODE.values() if family_of(kind) is family]
        yield f"### {family.__name__}\n\n"
        yield f"{cause_of(family)}: {family.default_remedy.text}.\n\n"
        yield "| code and class | HTTP | cause | remedy |\n|---|---|---|---|\n"
        yield from (row_of(kind) for kind in sorted(kinds, key=lambda kind: kind.code))
        yield "\n"


def _remedies(remedy: Remedy) -> str:
    """The text for every door, and the words of those that have some."""
    words = {door: filled(remedy.words(door), _PLACES) for door in _NAMES}
    told = [f"{_NAMES[door]}: {said}" for door, said in words.items() if said]
    return "<br>".join([remedy.text, *told] if len(told) < len(_NAMES) else told)


if __name__ == "__main__":
    PATH.write_text(rendered(PATH.read_text()))
