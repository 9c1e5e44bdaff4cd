"""Queries about the cluster's own processes: the live members, the leader, and holds.

Like all queries they travel on `subjects.query(<name>)`; `QUERIES` has their names. An answer is
the answering controller's own view: the views of two controllers may differ for some seconds. All
times are Unix milliseconds of the answering controller's clock.
"""

from collections.abc import Mapping
from typing import Literal

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import Query, Question


class ListControllers(Query):
    """→ ControllerList. Raises Unavailable until the controller has seen all records."""


class ControllerDescription(Contract):
    """A controller that announced itself. One that shuts down cleanly removes its record."""

    controller_id: str
    """The id of the controller."""
    session: str
    """Drawn anew at every start of the process."""
    live: bool
    """Whether the answering controller believes it alive."""
    since_ms: int
    """The time at which the answering controller saw it come up or go down."""
    leader: bool = False
    """Whether it leads the cluster."""
    term: int = 0
    """The leader's term, which counts the leaders of the cluster. 0: it does not lead."""
    host: str = ""
    """The name of its machine."""
    pid: int = 0
    """The id of its process on that machine."""
    started_ms: int = 0
    """The Unix time of the process's start in milliseconds."""


class ControllerList(Contract):
    ok: Literal[True] = True
    controllers: tuple[ControllerDescription, ...]
    """All known controllers, sorted by id."""


class ShowCluster(Query):
    """→ ClusterOverview. Raises Unavailable until the controller has seen all records."""


class MemberCount(Contract):
    known: int
    live: int


class Hold(Contract):
    """A hold. While it lasts, the controller moves no container and judges no missing member."""

    reason: Literal["blind", "losses"]
    """`blind`: the controller does not see its own beats, so it cannot judge any silence.
    `losses`: too many members fell silent at once; an operator may confirm that they are down."""
    since_ms: int
    controllers: tuple[str, ...] = ()
    """With `losses`: the ids of the controllers that seem to be down."""
    stores: tuple[str, ...] = ()
    """With `losses`: the ids of the segment stores that seem to be down."""


class BucketOwner(Contract):
    """The controller that works on a bucket's streams; empty: the bucket has no owner now."""

    bucket: int
    owner: str


class ClusterOverview(Contract):
    ok: Literal[True] = True
    answered_by: str
    """The id of the controller whose view this is."""
    leader: str = ""
    """The id of the leader; empty: the controller knows no leader."""
    term: int = 0
    """The leader's term; it increases with every change of leader."""
    hold: Hold | None = None
    """The reason why the controller moves nothing at present. None: no hold."""
    controllers: MemberCount
    """The known controllers, and the live ones among them."""
    stores: MemberCount
    """The known segment stores, and the live ones among them."""
    containers: Mapping[str, int]
    """The number of containers in each state of `ContainerDescription`; zeros are omitted."""
    buckets: tuple[BucketOwner, ...] = ()
    """Sorted by bucket; empty if buckets have no owners."""


class ConfirmLosses(Query):
    """→ LossesConfirmed. Confirms that members named by a hold with the reason `losses` are down.

    The answering controller forwards the request to the others. It may be repeated; without a hold
    it does nothing.
    """

    members: tuple[str, ...] = ()
    """Ids of the controllers and stores to confirm; empty: all that the hold names."""
    tell_others: bool = True
    """False in a forwarded request."""


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
