"""Takes secrets out of text. Pure.

Two nets lie over each other. Known secrets (`secrets_here` finds them on this machine) are replaced
wherever they stand, also percent-encoded or escaped for JSON. Patterns replace text that looks like
a secret: credentials in URLs, values after names such as ``password``, keys of object stores,
tokens, private keys. When in doubt, the patterns take too much.
"""

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

MASK = "***"
KNOWN_LENGTH_MIN = 4
"""Shorter known secrets would take half of the text with them; the patterns still apply."""
ALONE_LENGTH_MAX = 8
"""A known secret that is shorter counts only as a word of its own."""
_ORDINARY = frozenset({"true", "false", "null", "none", "auto", "default", "disk", "memory"})
_SECRET_NAME = re.compile(
    r"(?i)password|passphrase|secret|(^|[_-])(passwd|token|key|apikey|credentials?|seed)$"
)
_NAMES_A_PATH = re.compile(r"(?i)[_-](file|path|dir)$")
_KEYED = re.compile(
    r"(?i)(?:password|passwd|passphrase|\bpwd|secret|token|credentials?|authorization|signature|"
    r"\bsig(?==)|api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|[_-]key\b|[_-]seed\b)"
    r"[\w-]{0,64}(?P<quote>\\*[\"'])?[ \t]*[:=][ \t]*"
)
_HINTS = ("passw", "passphrase", "pwd", "secret", "token", "credential", "authorization", "sig",
          "key", "seed")  # fmt: skip
"""A line without any of these in lower case cannot match `_KEYED`; looking for them is faster."""
_OPENING = re.compile(r"(?:b|SecretStr\()?(\\*)([\"'])")
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token)[ \t]+")
_BARE = re.compile(r"[^\s\"']*")
_IN_JSON = re.compile(r"[^\s\"',}\]]*")
_NO_SECRET = re.compile(r"(?:null|None|true|false)?$|[{\[]")
_URL_LOGIN = re.compile(r"://[^\s\"<>]{0,2000}@")
_PEM_KINDS = r"[A-Z ]*(?:PRIVATE KEY|NKEY SEED|USER JWT)-----"
_PEM = re.compile(
    rf"(?s)(?:-----BEGIN {_PEM_KINDS}|\A(?=[^-]{{0,8000}}-----END {_PEM_KINDS}))"
    r".*?(?:-----END [A-Z ]*-----|\Z)"
)
_TOKENS = (
    re.compile(r"eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?"),  # a JSON web token
    re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"),  # an access key of S3
    re.compile(r"\bS[UAOCNX][A-Z2-7]{50,}\b"),  # the seed of an nkey
    re.compile(r"(?i)\b(?:bearer|basic) [A-Za-z0-9+/=_.~-]{8,}"),
)
_LIKE_S3_SECRET = re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret; one that names a file does not."""
    return bool(_SECRET_NAME.search(name)) and not _NAMES_A_PATH.search(name)


class Redactor:
    """Replaces secrets by `MASK`. `count` says how many were replaced so far."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for form in _forms(secret)}
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(_pattern, ordered))) if ordered else None
        self.count = 0

    def text(self, text: str) -> str:
        """The text without secrets. A text of JSON stays one."""
        if self._known is not None:
            text = self._counted(self._known, MASK, text)
        text = self._counted(_PEM, MASK, text)
        text = self._counted(_URL_LOGIN, f"://{MASK}@", text)
        for pattern in _TOKENS:
            text = self._counted(pattern, MASK, text)
        lines = zip(text.split("\n"), text.lower().split("\n"), strict=True)
        text = "\n".join(
            self._without_keyed(line) if any(hint in low for hint in _HINTS) else line
            for line, low in lines
        )
        return _LIKE_S3_SECRET.sub(self._masked_s3, text)

    def _counted(self, pattern: re.Pattern[str], mask: str, text: str) -> str:
        text, count = pattern.subn(mask, text)
        self.count += count
        return text

    def _masked_s3(self, match: re.Match[str]) -> str:
        found = match[0]
        kinds = (str.islower, str.isupper, str.isdigit)
        if not all(any(map(kind, found)) for kind in kinds):
            return found
        self.count += 1
        return MASK

    def _without_keyed(self, text: str) -> str:
        """A line without the values that follow a name of a secret."""
        pieces, at = [], 0
        while match := _KEYED.search(text, at):
            start = match.end()
            name = match[0].rstrip(" \t:=\"'\\")
            span = None if _NAMES_A_PATH.search(name) else _value(text, start, match["quote"])
            if span is None:
                pieces.append(text[at:start])
                at = start
                continue
            first, last, mask = span
            pieces += [text[at:first], mask]
            self.count += 1
            at = last
        return "".join((*pieces, text[at:]))


def _value(text: str, start: int, name_quote: str | None) -> tuple[int, int, str] | None:
    """Where the value that begins here lies, and its mask; None if it is no secret.

    `name_quote`: the quote after the name, if there is one, as JSON and Python write it.
    """
    opening = _OPENING.match(text, start)
    if opening is not None:
        first = opening.end()
        return first, _closing(text, first, opening[1], opening[2]), MASK
    scheme = _SCHEME.match(text, start)
    first = start if scheme is None else scheme.end()
    match = (_IN_JSON if name_quote else _BARE).match(text, first)
    assert match is not None, "the pattern also matches nothing"
    if _NO_SECRET.match(match[0]):
        return None
    last = match.end()
    while not name_quote and (opening := _OPENING.match(text, last)):  # as in password=f('x')
        closing = _closing(text, opening.end(), opening[1], opening[2])
        last = _BARE.match(text, min(closing + len(opening[0]), len(text))).end()  # type: ignore[union-attr]
    quote_mark = name_quote or ""
    return start, last, f"{quote_mark}{MASK}{quote_mark}"


def _closing(text: str, first: int, escapes: str, mark: str) -> int:
    """The index of the quote that closes a value: one with exactly as many backslashes before it
    as the opening one; else the end of the line."""
    at = text.find(mark, first)
    while at >= 0:
        before = at
        while before > first and text[before - 1] == "\\":
            before -= 1
        if at - before == len(escapes):
            return before
        at = text.find(mark, at + 1)
    return len(text)


def _pattern(form: str) -> str:
    escaped = re.escape(form)
    if len(form) >= ALONE_LENGTH_MAX:
        return escaped
    return rf"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])"


def _forms(secret: str) -> set[str]:
    """The secret as it may stand in a text."""
    if len(secret) < KNOWN_LENGTH_MIN or secret.lower() in _ORDINARY:
        return set()
    escaped = json.dumps(secret)[1:-1]
    plain = json.dumps(secret, ensure_ascii=False)[1:-1]
    return {
        secret, escaped, plain, json.dumps(escaped)[1:-1], repr(secret)[1:-1],
        quote(secret), quote(secret, safe=""), quote_plus(secret),
    }  # fmt: skip
