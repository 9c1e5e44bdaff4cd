"""Replaces the names of scopes, streams, groups and tables by hashes. Pure.

A name keeps its hash throughout a bundle, so that records and log lines can still be matched. The
salt is drawn for each bundle and not kept, so a reader cannot try names against the hashes. Names
are learned from the cluster's lists and from the fields of log lines; a name that stands in free
text alone stays.
"""

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

NAME_FIELDS = frozenset({
    "scope", "scopes", "stream", "streams", "group", "groups", "subscriber", "subscribers",
    "segment", "segments", "application", "tag", "tags", "reader", "readers", "subject",
    "aggregate", "aggregates", "table", "tables",
})  # fmt: skip
"""The fields whose values are names, or paths of them such as ``scope/stream``."""
CONSTANT_FIELDS = frozenset({
    "event", "level", "at", "service", "logger", "code", "state", "part", "kind", "step", "check",
    "verdict",
})  # fmt: skip
"""The fields whose values are words of the project."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]+(?:[.=][A-Za-z0-9_-]+)*")
_SEGMENT = re.compile(r"\d+(\.#epoch\.\d+)?")
_SUBJECT = re.compile(r"(ana\.[a-z]+\.\d+\.[a-z]+)\.(.+)")
_KINDS = frozenset({"stream", "scope", "group", "rg", "table", "kvt", "txn", "transaction"})
_DIGITS = 10


class Anonymizer:
    """`replaced`: whole texts, such as paths, that stand for something else in every text."""

    def __init__(self, salt: bytes, replaced: Mapping[str, str] | None = None) -> None:
        self._salt = salt
        self._names: dict[str, str] = {}
        self._replaced = {text: shown for text, shown in (replaced or {}).items() if len(text) > 1}

    def learn(self, value: object, key: str = "") -> None:
        """Learn the names in a record: a JSON value."""
        if isinstance(value, dict):
            for name, one in value.items():
                self.learn(one, str(name))
        elif isinstance(value, list | tuple):
            for one in value:
                self.learn(one, key)
        elif isinstance(value, str) and key in NAME_FIELDS:
            for name in _names_in(value):
                self.name(name)

    def name(self, text: str) -> str:
        """The hash that stands for a name from now on."""
        known = self._names.get(text)
        if known is None:
            digest = sha256(self._salt + text.encode()).hexdigest()[:_DIGITS]
            known = self._names[text] = f"n{digest}"
        return known

    def record(self, value: object, key: str = "") -> object:
        """A JSON value with hashes in place of names."""
        if isinstance(value, dict):
            return {name: self.record(one, str(name)) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.record(one, key) for one in value]
        if not isinstance(value, str) or key in CONSTANT_FIELDS:
            return value
        if key in NAME_FIELDS:
            for name in _names_in(value):
                self.name(name)
        return self.text(value)

    def text(self, text: str) -> str:
        """Free text with hashes in place of the names that are known so far."""
        for found, shown in self._replaced.items():
            text = text.replace(found, shown)
        return _TOKEN.sub(self._replacement, text)

    def line(self, line: str) -> str:
        """A line of a log: a JSON object, or free text."""
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        return json.dumps(self.record(found)) if isinstance(found, dict) else self.text(line)

    def _replacement(self, match: re.Match[str]) -> str:
        token = match[0]
        if token in self._names:
            return self._names[token]
        return ".".join(self._token_of_subject(piece) for piece in token.split("."))

    def _token_of_subject(self, piece: str) -> str:
        """A piece of a subject, in which ``=`` stands for the dot of a name; or ``field=name``."""
        known = self._names.get(piece.replace("=", "."))
        return known or "=".join(self._names.get(one, one) for one in piece.split("="))


def _names_in(value: str) -> Iterable[str]:
    """The names in ``scope/stream``, ``stream:scope/stream``, a segment's name, or a subject."""
    subject = _SUBJECT.fullmatch(value)
    if subject is not None:
        return [name.replace("=", ".") for name in subject[2].split(".")]
    kind, colon, rest = value.partition(":")
    path = rest if colon and kind in _KINDS else value
    names = [piece.partition("#")[0].strip("+~ ") for piece in path.split("/")]
    return [name for name in names if name and not _SEGMENT.fullmatch(name.rstrip("."))]
