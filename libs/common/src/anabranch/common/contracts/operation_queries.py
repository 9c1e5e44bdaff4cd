"""Queries about accepted commands and the work that follows: request/reply as in `queries.py`."""

from collections.abc import Mapping
from typing import Literal

from anabranch.common.contracts.base import Contract, ErrorBody, ReadToken
from anabranch.common.contracts.place import Placed
from anabranch.common.contracts.queries import OperationFound, PagedQuery, Question


class ListOperations(PagedQuery):
    """→ OperationList: the operations that aggregates remember, sorted by id.

    `state`: list only running, or only failed ones. `scope`: list only the operations of this scope
    and its parts; empty: all. Deleted scopes and streams still remember theirs.
    """

    scope: str = ""
    state: Literal["running", "failed", "all"] = "all"


class OperationList(Contract):
    """`read_tokens`: a query that demands these points sees the effects of the listed operations
    on the aggregates that remember them."""

    ok: Literal[True] = True
    operations: tuple[OperationFound, ...]
    next_page_token: str = ""
    """Empty on the last page. Earlier pages may be short or even empty."""
    read_tokens: tuple[ReadToken, ...] = ()


class ListWork(PagedQuery):
    """→ WorkList: scopes, streams, groups, tables, transactions with a next step, sorted by name.

    `scope`: list only this scope and its parts; empty: all. `only_here`: list only the work of the
    answering controller; controllers ask each other in this way.
    """

    scope: str = ""
    only_here: bool = False


class Work(Placed):
    """A scope, a stream, reader group or table in it, or a stream's transaction; and its next step.

    `kind`: the kind of the pending intent. `since_ms`: the Unix time in milliseconds since which it
    is pending (0: not known). `attempts`: the consecutive failures of the step since
    `trying_since_ms`; `last_error`: the last failure, with its remedy. `waits_for`: the unfinished
    work that the step needs. `controller`: the controller that reports the work; empty: none does.
    """

    transaction: str | None = None
    kind: str
    step: str
    since_ms: int = 0
    bucket: int
    operations: tuple[str, ...] = ()
    """The operations that wait for the work, at most `OPERATIONS_TOLD_MAX`."""
    attempts: int = 0
    trying_since_ms: int = 0
    last_error: ErrorBody | None = None
    waits_for: str = ""
    controller: str = ""


OPERATIONS_TOLD_MAX = 16


class WorkList(Contract):
    ok: Literal[True] = True
    work: tuple[Work, ...]
    next_page_token: str = ""
    """Empty on the last page."""


QUERIES: Mapping[str, Question] = {
    "list_operations": Question(ListOperations, OperationList),
    "list_work": Question(ListWork, WorkList),
}
"""By name."""
