"""The questions of controllers to stores that replicate logs, request and reply over NATS.

A controller that looks for the leader of a container's log publishes a `PromiseEpoch` on
`subjects.promise_request(<node id>)` of each store that may have a copy. Before the store answers,
it has durably recorded that its copy refuses lower container epochs. Any controller may repeat the
question.
"""

from typing import Annotated, Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract, ErrorBody

PROMISE_S_MAX = 1.0
"""The time within which a store answers. A controller waits no longer."""


class PromiseEpoch(Contract):
    """→ EpochPromised | PromiseRefused. Refuses lower container epochs from now on.

    A store without a copy of the log promises as well. Raises Deposed (a higher epoch was
    promised), Unavailable.
    """

    schema_number: Literal[1] = 1
    container: int = Field(ge=0)
    log_id: str = Field(min_length=1)
    container_epoch: int = Field(ge=1)


class EndOfCopy(Contract):
    """The last message of a copy: its container epoch, its number in that epoch, and the number of
    the last operation up to there."""

    container_epoch: int
    number: int
    last_sequence: int


class EpochPromised(Contract):
    """`copy_id`: the copy that the store has of this log; empty, without an `end`: none."""

    ok: Literal[True] = True
    copy_id: str = ""
    end: EndOfCopy | None = None


class PromiseRefused(Contract):
    """The store promised nothing."""

    ok: Literal[False] = False
    error: ErrorBody


PromiseAnswer = Annotated[EpochPromised | PromiseRefused, Field(discriminator="ok")]
