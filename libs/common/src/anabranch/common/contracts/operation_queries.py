"""Queries about accepted commands and the work that follows from them: as in `queries.py`."""

from collections.abc import Mapping
from typing import Literal

from anabranch.common.contracts.base import Contract, ErrorBody, ReadToken
from anabranch.common.contracts.place import Placed
from anabranch.common.contracts.queries import OperationFound, PagedQuery, Question


class ListOperations(PagedQuery):
    """→ OperationList: what aggregates remember, sorted by operation id.

    `state`: only those that run, or that failed. `scope`: only the scope's and its streams';
    empty: all. Scopes and streams that were deleted remember theirs.
    """

    scope: str = ""
    state: Literal["running", "failed", "all"] = "all"


class OperationList(Contract):
    """`read_tokens`: a query that demands these points sees what the listed operations have done
    to the aggregates that remember them."""

    ok: Literal[True] = True
    operations: tuple[OperationFound, ...]
    next_page_token: str = ""
    """Empty on the last page; others may be short, and even without operations."""
    read_tokens: tuple[ReadToken, ...] = ()


class ListWork(PagedQuery):
    """→ WorkList: scopes, streams, groups and transactions with a next step, sorted by name.

    `scope`: only that one and its streams; empty: all. `only_here`: what the answering controller
    itself works on, as controllers ask each other.
    """

    scope: str = ""
    only_here: bool = False


class Work(Placed):
    """A scope, or a stream or reader group in it, or a transaction of the stream, and what is to be
    done next.

    `kind` and `since_ms`: of the intent, since when it is pending, in Unix milliseconds (0: not
    known). `attempts`: how often the step did not succeed in a row, since `trying_since_ms`;
    `last_error` why, with its remedy; `waits_for`: what the step needs that is not done yet.
    `controller`: who works on it; empty: nobody said so.
    """

    transaction: str | None = None
    kind: str
    step: str
    since_ms: int = 0
    bucket: int
    operations: tuple[str, ...] = ()
    """That wait for it, at most `OPERATIONS_TOLD_MAX`."""
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
