"""The secrets that this machine knows, so that they can be taken out wherever they stand.

They come from the environment, from the cluster's address, and from the credentials files that
either names. They stay in memory; nothing of them is written.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from anabranch.cli.support.redaction import is_secret_name
from anabranch.common.runtime.addresses import ENDPOINTS_FILE

OWN = "ANABRANCH_"
FILE_BYTES_MAX = 64 * 1024
_ASSIGNED = re.compile(r"(?m)^\s*([\w.-]+)\s*[:=]\s*[\"']?([^\s\"']+)")
_LIKE_A_FILE = re.compile(r"(?i)(credential|password|passwd|secret|token|key|seed)")
_USUAL_FILES = ("nats-credentials.json", "run/nats.conf")


def known_secrets(
    environment: Mapping[str, str], data_dir: Path | None, addresses: Iterable[str] = ()
) -> set[str]:
    """All of them. A file that cannot be read adds none. Blocking."""
    found = {value for name, value in environment.items() if is_secret_name(name)}
    own = [value for name, value in environment.items() if name.startswith(OWN)]
    for text in (*own, *addresses):
        found |= secrets_in_url(text)
    files = [
        Path(value)
        for name, value in environment.items()
        if name.endswith("_FILE") and _LIKE_A_FILE.search(name)
    ]
    if data_dir is not None:
        files += [data_dir / name for name in _USUAL_FILES]
        for text in _texts_in(data_dir / ENDPOINTS_FILE):
            found |= secrets_in_url(text)
            files.append(data_dir / text)  # The credentials file, if it is one.
    for file in files:
        found |= secrets_in_file(_text(file))
    return {secret for secret in found if secret}


def secrets_in_url(text: str) -> set[str]:
    """The passwords in one URL or several, as written and decoded; a user alone is a token."""
    if "://" not in text or "@" not in text:
        return set()
    found = set()
    for one in (text, *text.split(",")):
        try:
            login = urlsplit(one.strip()).netloc.rpartition("@")[0]
        except ValueError:
            continue
        user, colon, password = login.partition(":")
        secret = password if colon else user
        found |= {secret, unquote(secret)}
    return found - {""}


def secrets_in_file(text: str) -> set[str]:
    """The values in a credentials file: of JSON, of lines `name = value`, or the one line."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return {value for name, value in found.items() if isinstance(value, str) and name != "user"}
    assigned = {match[2] for match in _ASSIGNED.finditer(text) if is_secret_name(match[1])}
    words = text.split()
    return assigned or ({words[0]} if len(words) == 1 else set())


def _texts_in(endpoints: Path) -> list[str]:
    """The texts in an endpoints file: URLs, and the name of the credentials file."""
    try:
        found = json.loads(_text(endpoints))
        return [text for text in found.values() if isinstance(text, str)]
    except (ValueError, AttributeError):
        return []


def _text(file: Path) -> str:
    try:
        with file.open("rb") as source:
            return source.read(FILE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
