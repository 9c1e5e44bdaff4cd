"""What `fuzz_gateway` adds to Schemathesis: names that exist, and what counts as a defect."""

import json
import os
from typing import Any

import schemathesis

ON_PURPOSE = frozenset({503, 504})
"""Asked for too much or not to be had now; outcome not known in time."""
SCOPE = "scope"
STREAM = "stream"
GROUP = "group"
TABLE = "table"
DOOMED = "doomed"
"""What requests that end something are about, so that the rest still find the other one."""
ENDED = "ended"
"""A group on a sealed stream, and a sealed table: their events and changes come to an end, where
those of others never do."""

TRANSACTION, DECIDED = os.environ.get("FUZZED_TRANSACTIONS", f"{'0' * 32} {'1' * 32}").split()
"""Ids of an open one, and of one for requests that end it."""


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any]) -> dict[str, Any]:
    """Every other request is about what exists; the rest keep the names that were drawn.

    Stateful sequences draw names from earlier answers, so that a drawn one may exist too.
    """
    path = context.operation.path
    streams_for_ever = path.endswith(("/readergroups/{group}/events", "/changes"))
    if not path_parameters:
        return path_parameters
    scope = str(path_parameters.get("scope", ""))
    if len(scope) % 2 and scope != SCOPE and not streams_for_ever:
        return path_parameters
    ends = context.operation.method.lower() in ("delete", "put")
    decides = path.endswith(("/commit", "/abort"))
    ends_scope = ends and not {"stream", "group", "table"} & path_parameters.keys()
    ends_table = ends and not path.endswith("/entries/{key}")
    existing = {
        "scope": DOOMED if ends_scope else SCOPE,
        "stream": DOOMED if ends else STREAM,
        "group": ENDED if streams_for_ever else DOOMED if ends else GROUP,
        "table": ENDED if streams_for_ever else DOOMED if ends_table else TABLE,
        "segment": 0,
        "part": "controller" if "/health" in path else "2" * 32,
        "transaction": DECIDED if decides else TRANSACTION,
        "application": "etl",
        "asset": "start.js",
    }
    return {name: existing.get(name, value) for name, value in path_parameters.items()}


@schemathesis.serializer("application/x-ndjson")
def lines_of_json(_context: Any, value: Any) -> bytes:
    """Every other body is an entry of a table, which is also an event; the rest is as drawn."""
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) % 2:
        text = json.dumps({"key": text, "value": text})
    return text.encode(errors="replace")


@schemathesis.check
def no_defect(_context: Any, response: Any, _case: Any) -> None:
    """No answer of 5xx but those that are given on purpose."""
    status = response.status_code
    assert status < 500 or status in ON_PURPOSE, f"the gateway answered {status}: {response.text}"
