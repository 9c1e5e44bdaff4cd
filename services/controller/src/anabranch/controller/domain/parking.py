"""Parking of commands whose handling fails because of a defect.

A refusal is an answer, and `TryAgain` is the stores' fault. A defect is a programming error, so
retries will hardly help. After a few attempts over half a minute the command is *parked*, with
everything needed to publish it again, and its bucket continues.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from anabranch.common.contracts.envelope import AUTHORIZATION
from anabranch.common.runtime.backoff import Backoff

PARK_AT_COUNT = 10
PAUSES = Backoff(first_s=0.1, longest_s=5.0)
"""The pauses between attempts: 11 to 22 s in total before the last."""
ERROR_LENGTH_MAX = 1000
ABOUT_HEADER = "Anabranch-Parked"
"""Holds the details of the parking, as JSON, beside the command's own headers."""
SCHEMA_NUMBER = 1
_COMMAND_ID = re.compile(r"[A-Za-z0-9_\-]{1,64}")
_SERVERS_OWN = "nats-"
"""Headers with this prefix control the server, and would do so again if they were kept."""


@dataclass(frozen=True, slots=True)
class ParkedCommand:
    """A parked command. Times are Unix ms; `headers` are the command's, without those that control
    the server; `error` is the last one.
    """

    command_id: str
    bucket: int
    subject: str
    body: bytes
    headers: Mapping[str, str]
    error: str
    attempts: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Defects:
    """Consecutive defects of one command, which its sequence number in the queue identifies."""

    sequence: int
    count: int
    first_ms: int
    last_ms: int

    @classmethod
    def after(cls, before: Self | None, sequence: int, now_ms: int) -> Self:
        """Add one more defect of the command; those of another command do not count."""
        if before is None or before.sequence != sequence:
            return cls(sequence, 1, now_ms, now_ms)
        return cls(sequence, before.count + 1, before.first_ms, now_ms)


def command_id_in(body: bytes, sequence: int) -> str:
    """The command's id in its body; if there is none, an id made of its sequence number."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    said = found.get("command_id") if isinstance(found, dict) else None
    if isinstance(said, str) and _COMMAND_ID.fullmatch(said):
        return said
    return f"unnamed-{sequence}"


def headers_to_keep(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers to keep for publishing the command again.

    A token is omitted: it is a secret, and it would have expired by then.
    """
    return {
        name: value
        for name, value in headers.items()
        if not name.lower().startswith(_SERVERS_OWN) and name.lower() != AUTHORIZATION
    }


def parked_headers(command: ParkedCommand) -> dict[str, str]:
    """The headers under which a parked command is kept; its body is kept as it is."""
    about = {
        "schema_number": SCHEMA_NUMBER,
        "subject": command.subject,
        "error": command.error[:ERROR_LENGTH_MAX],
        "attempts": command.attempts,
        "first_ms": command.first_ms,
        "last_ms": command.last_ms,
    }
    return {**command.headers, ABOUT_HEADER: json.dumps(about)}


def parked_command(
    bucket: int, command_id: str, headers: Mapping[str, str], body: bytes
) -> ParkedCommand:
    """The inverse of `parked_headers`; missing or damaged values are empty or 0."""
    about = _about(headers.get(ABOUT_HEADER, ""))
    return ParkedCommand(
        command_id=command_id,
        bucket=bucket,
        subject=str(about.get("subject", "")),
        body=body,
        headers={name: value for name, value in headers.items() if name != ABOUT_HEADER},
        error=str(about.get("error", "")),
        attempts=_number(about.get("attempts")),
        first_ms=_number(about.get("first_ms")),
        last_ms=_number(about.get("last_ms")),
    )


def _about(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(found: object) -> int:
    return found if isinstance(found, int) else 0
