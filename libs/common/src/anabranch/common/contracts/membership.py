"""Queries about the cluster's own processes: who is alive, who leads, what is held, and why.

Asked like all others, on `subjects.query(<name>)`; `QUERIES` here has their names. What they tell
is the answering controller's own view: two controllers may differ for some seconds. All times are
Unix milliseconds of the answering controller's clock.
"""

from collections.abc import Mapping
from typing import Literal

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import Query, Question


class ListControllers(Query):
    """→ ControllerList; Unavailable until the controller has seen all records."""


class ControllerDescription(Contract):
    """A controller that announced itself; one that ended in order leaves no record."""

    controller_id: str
    """The id of the controller."""
    session: str
    """Drawn anew at every start of the process."""
    live: bool
    """Whether the answering controller believes it alive."""
    since_ms: int
    """Since when it is alive, or down, as the answering controller saw it."""
    leader: bool = False
    """Whether it leads the cluster."""
    term: int = 0
    """Of a leader: counts the leaders of the cluster. 0: it does not lead."""
    host: str = ""
    """The name of its machine."""
    pid: int = 0
    """The id of its process on that machine."""
    started_ms: int = 0
    """The Unix time of the process's start in milliseconds."""


class ControllerList(Contract):
    ok: Literal[True] = True
    controllers: tuple[ControllerDescription, ...]
    """By controller id."""


class ShowCluster(Query):
    """→ ClusterOverview; Unavailable until the controller has seen all records."""


class MemberCount(Contract):
    known: int
    live: int


class Hold(Contract):
    """Nothing is concluded and nothing is moved at the moment."""

    reason: Literal["blind", "losses"]
    """`blind`: the controller does not see its own beats, so it knows nothing of the others.
    `losses`: too many went at once to be believed; an operator may confirm it."""
    since_ms: int
    controllers: tuple[str, ...] = ()
    """With `losses`: those that seem to be gone, by id."""
    stores: tuple[str, ...] = ()


class BucketOwner(Contract):
    """Which controller works on a bucket's streams; empty: nobody at the moment."""

    bucket: int
    owner: str


class ClusterOverview(Contract):
    ok: Literal[True] = True
    answered_by: str
    """The id of the controller whose view this is."""
    leader: str = ""
    """Empty: nobody leads, as far as is known."""
    term: int = 0
    """The leader's term; it increases with every change of leader."""
    hold: Hold | None = None
    """The reason why the controller moves nothing at present. None: no hold."""
    controllers: MemberCount
    """The known controllers, and the live ones among them."""
    stores: MemberCount
    """The known segment stores, and the live ones among them."""
    containers: Mapping[str, int]
    """How many are in each state, as `ContainerDescription` has it; no zeros."""
    buckets: tuple[BucketOwner, ...] = ()
    """By bucket; empty where buckets have no owners."""


class ConfirmLosses(Query):
    """→ LossesConfirmed: what a hold with the reason `losses` names is down indeed.

    The controller that answers tells the others. May be repeated; without a hold it does nothing.
    """

    members: tuple[str, ...] = ()
    """Ids of the controllers and stores to confirm; empty: all that the hold names."""
    tell_others: bool = True


class LossesConfirmed(Contract):
    ok: Literal[True] = True
    controllers: tuple[str, ...]
    stores: tuple[str, ...]


QUERIES: Mapping[str, Question] = {
    "list_controllers": Question(ListControllers, ControllerList),
    "cluster_overview": Question(ShowCluster, ClusterOverview),
}

ACTIONS: Mapping[str, Question] = {"confirm_losses": Question(ConfirmLosses, LossesConfirmed)}
"""By name."""
