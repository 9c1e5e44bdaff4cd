"""All queries and actions of a controller, by name.

`QUERIES` only read. `ACTIONS` change something before the controller answers them, by the same
request/reply. Commands, which the work queue carries, are in `commands`; all of them change
something. A name is in one of the two registries, so that each request has one right: to read, or
to change.
"""

from collections.abc import Mapping
from itertools import chain
from types import ModuleType

from anabranch.common.contracts import (
    container_queries,
    membership,
    operation_queries,
    parked,
    queries,
    reader_groups,
    scaling,
    spus,
    stream_queries,
    tables,
    topics,
    transactions,
    watermarks,
    writer_times,
)
from anabranch.common.contracts.queries import Query, Question

_READING: tuple[ModuleType, ...] = (
    queries,
    container_queries,
    stream_queries,
    scaling,
    operation_queries,
    parked,
    membership,
    reader_groups,
    tables,
    writer_times,
    watermarks,
    transactions,
    topics,
    spus,
)
_CHANGING: tuple[ModuleType, ...] = (
    queries,
    container_queries,
    parked,
    membership,
    writer_times,
    transactions,
    topics,
    spus,
)

Registry = Mapping[str, Question]

QUERIES: Registry = dict(chain.from_iterable(module.QUERIES.items() for module in _READING))
"""Questions that only read."""

ACTIONS: Registry = dict(chain.from_iterable(module.ACTIONS.items() for module in _CHANGING))
"""Questions that change something."""

QUESTIONS: Registry = {**QUERIES, **ACTIONS}
"""Both."""

NAME_OF: Mapping[type[Query], str] = {asked.query: name for name, asked in QUESTIONS.items()}
