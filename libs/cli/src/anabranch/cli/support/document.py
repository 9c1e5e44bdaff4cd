"""A document of a bundle, and its way to bytes: anonymity first, then redaction. Pure."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from anabranch.cli.support.anonymity import Anonymizer
from anabranch.cli.support.redaction import Redactor

Record = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Document:
    """`records` is one object (`json`), several (`lines`), or empty: then `text` is the content.

    `note` names the missing rest.
    """

    path: str
    kind: Literal["json", "lines", "text", "log"]
    text: str = ""
    records: tuple[Record, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Documents that are gathered together, and fail together. `about` names their subject."""

    name: str
    about: str
    gather: Callable[[], AsyncIterator[Document]]
    seconds_max: float = 20.0


def single(path: str, record: Record) -> Document:
    """A document with one JSON object."""
    return Document(path, "json", records=(record,))


def many(path: str, records: Iterable[Record], note: str = "") -> Document:
    """A document with one JSON object per line."""
    return Document(path, "lines", records=tuple(records), note=note)


def encoded(document: Document, redactor: Redactor, anonymizer: Anonymizer | None) -> bytes:
    """The content without secrets; with an anonymizer, also without names."""
    if anonymizer is not None:
        document = _anonymous(document, anonymizer)
    match document.kind:
        case "json":
            text = json.dumps(document.records[0], indent=2, default=str) + "\n"
        case "lines":
            text = "".join(f"{json.dumps(found, default=str)}\n" for found in document.records)
        case "text" | "log":
            text = document.text
    return redactor.text(text).encode(errors="replace")


def _anonymous(document: Document, anonymizer: Anonymizer) -> Document:
    if document.kind == "log":
        lines = document.text.splitlines()
        for line in lines:
            _learn(line, anonymizer)
        text = "".join(f"{anonymizer.line(line)}\n" for line in lines)
        return Document(document.path, "log", text=text)
    if document.kind == "text":
        return Document(document.path, "text", text=anonymizer.text(document.text))
    for found in document.records:
        anonymizer.learn(found)
    records = tuple(_record(found, anonymizer) for found in document.records)
    return Document(document.path, document.kind, records=records)


def _record(found: Record, anonymizer: Anonymizer) -> Record:
    shown = anonymizer.record(dict(found))
    assert isinstance(shown, dict)
    return shown


def _learn(line: str, anonymizer: Anonymizer) -> None:
    try:
        found = json.loads(line)
    except ValueError:
        return
    anonymizer.learn(found)
