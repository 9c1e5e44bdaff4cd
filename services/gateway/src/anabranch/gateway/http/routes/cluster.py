"""The cluster: its controllers, segment stores and containers, as one controller sees them."""

from typing import Literal

from fastapi import APIRouter
from starlette.requests import Request

from anabranch.gateway.http.models.answers import Told
from anabranch.gateway.http.routes.parts import parts_of

router = APIRouter(prefix="/v1/cluster", tags=["cluster"])


class Count(Told):
    known: int
    live: int


class HoldProperty(Told):
    """The reason for a hold. `controllers`, `stores`: the members that seem lost."""

    reason: Literal["blind", "losses"]
    since_ms: int
    controllers: list[str]
    stores: list[str]


class BucketProperty(Told):
    """The controller that owns a bucket; empty: none at the moment."""

    bucket: int
    owner: str


class ClusterProperty(Told):
    """`answeredBy`: the controller whose view this is. `containers`: the number in each state."""

    answered_by: str
    leader: str
    term: int
    hold: HoldProperty | None = None
    controllers: Count
    stores: Count
    containers: dict[str, int]
    buckets: list[BucketProperty]


class ControllerProperty(Told):
    """`session`: drawn at every start; `term`: for the leader, the count of leaders so far."""

    controller_id: str
    session: str
    live: bool
    since_ms: int
    leader: bool
    term: int
    host: str
    pid: int
    started_ms: int


class ControllersList(Told):
    controllers: list[ControllerProperty]


class StoreProperty(Told):
    """`stopped`: down after a clean shutdown. `containers`: the number placed on it;
    `containers_followed`: the number whose logs it replicates without leading them."""

    node_id: str
    host: str
    port: int
    live: bool = True
    since_ms: int = 0
    session: str = ""
    stopped: bool = False
    containers: int = 0
    containers_open: int = 0
    containers_followed: int = 0
    rack: str = ""
    log: str = "journal"
    over: bool = False
    refused: bool = False
    draining: bool = False


class StoresList(Told):
    stores: list[StoreProperty]


class ContainerProperty(Told):
    """Only an open container serves. `target`: the node to which it is moving. `replicas`: the
    nodes that replicate its log, the leader first; `isr`: those whose copies are in sync, of which
    there must be `isr_min`; `wanted`: the replicas that an operator asked for."""

    container: int
    state: str
    container_epoch: int
    node_id: str
    host: str
    port: int
    restarts: int
    reason: str
    target: str
    since_ms: int = 0
    pinned: bool = False
    log: str = ""
    lease: str = ""
    replicas: tuple[str, ...] = ()
    isr: tuple[str, ...] = ()
    isr_min: int = 0
    wanted: tuple[str, ...] = ()


class ContainersList(Told):
    containers: list[ContainerProperty]


@router.get("", response_model_exclude_none=True)
async def show_cluster(request: Request) -> ClusterProperty:
    """200: an overview of the cluster; 503 until a controller knows it."""
    return ClusterProperty.model_validate(await parts_of(request).client.cluster.show())


@router.get("/controllers")
async def list_controllers(request: Request) -> ControllersList:
    """200: all controllers, by id; 503 until a controller knows them."""
    found = [one async for one in parts_of(request).client.controllers.list()]
    return ControllersList(controllers=[ControllerProperty.model_validate(one) for one in found])


@router.get("/stores")
async def list_stores(request: Request) -> StoresList:
    """200: all announced segment stores, by id; 503 until a controller knows them."""
    found = [one async for one in parts_of(request).client.stores.list()]
    return StoresList(stores=[StoreProperty.model_validate(one) for one in found])


@router.get("/containers")
async def list_containers(request: Request) -> ContainersList:
    """200: all containers, by number; 503 until a controller knows them."""
    found = [one async for one in parts_of(request).client.containers.list()]
    return ContainersList(containers=[ContainerProperty.model_validate(one) for one in found])
