"""Queries about one container: request/reply as in `queries.py`."""

from collections.abc import Mapping
from typing import Literal

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import ContainerDescription, Query, Question


class ExplainContainer(Query):
    """→ ContainerExplained. Raises InvalidRequest (no such container), and Unavailable until the
    controller has seen all records."""

    container: int


class ContainerExplained(Contract):
    """A container, with the reasons why it does not serve, and the next step of the cluster.

    The sentences are for people; their wording may change with any release.
    """

    ok: Literal[True] = True
    container: ContainerDescription
    reasons: tuple[str, ...] = ()
    """Sentences, the most important one first; at least one."""


QUERIES: Mapping[str, Question] = {
    "explain_container": Question(ExplainContainer, ContainerExplained),
}
"""By name."""
