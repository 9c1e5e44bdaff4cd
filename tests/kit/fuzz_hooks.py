"""What `fuzz_gateway` adds to Schemathesis: names that exist, and what counts as a defect."""

import os
from typing import Any

import schemathesis

ON_PURPOSE = frozenset({503, 504})
"""Asked for too much or not to be had now; outcome not known in time."""
SCOPE = "scope"
STREAM = "stream"
GROUP = "group"
DOOMED = "doomed"
"""What requests that end something are about, so that the rest still find the other one."""
ENDED_GROUP = "ended"
"""A group on a sealed stream: its events come to an end, where another group's never do."""

TRANSACTION, ENDED = os.environ.get("FUZZED_TRANSACTIONS", f"{'0' * 32} {'1' * 32}").split()
"""Ids of an open one, and of one for requests that end it."""


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any]) -> dict[str, Any]:
    """Every other request is about what exists; the rest keep the names that were drawn.

    Stateful sequences draw names from earlier answers, so that a drawn one may exist too.
    """
    path = context.operation.path
    streams_for_ever = path.endswith("/readergroups/{group}/events")
    if not path_parameters:
        return path_parameters
    scope = str(path_parameters.get("scope", ""))
    if len(scope) % 2 and scope != SCOPE and not streams_for_ever:
        return path_parameters
    ends = context.operation.method.lower() in ("delete", "put")
    decides = path.endswith(("/commit", "/abort"))
    ends_scope = ends and not {"stream", "group"} & path_parameters.keys()
    existing = {
        "scope": DOOMED if ends_scope else SCOPE,
        "stream": DOOMED if ends else STREAM,
        "group": ENDED_GROUP if streams_for_ever else DOOMED if ends else GROUP,
        "segment": 0,
        "part": "controller" if "/health" in path else "2" * 32,
        "transaction": ENDED if decides else TRANSACTION,
        "application": "etl",
        "asset": "start.js",
    }
    return {name: existing.get(name, value) for name, value in path_parameters.items()}


@schemathesis.check
def no_defect(_context: Any, response: Any, _case: Any) -> None:
    """No answer of 5xx but those that are given on purpose."""
    status = response.status_code
    assert status < 500 or status in ON_PURPOSE, f"the gateway answered {status}: {response.text}"
