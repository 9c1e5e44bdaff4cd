"""The commands `anabranch spu …` that register and list SPUs: segment stores with an SPU id."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from anabranch.cli.figures import NONE
from anabranch.cli.moving import store_state
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.cli.topics import tables
from anabranch.client import Client, NodeDescription
from anabranch.common.contracts.spus import SpuDescription
from anabranch.common.model.objects import PrivateEndpoint, PublicEndpoint, SpuResolution

COLUMNS = (
    "id", "name", "status", "type", "rack", "public", "private",
    "state", "log", "draining", "containers", "open", "follows",
)  # fmt: skip
REFUSED = "refused"
_HERE = Connection()


def register(
    *,
    spu_id: Annotated[int, Parameter(name=("--id", "-i"))],
    public_server: Annotated[str | None, Parameter(name=("--public-server", "-p"))] = None,
    private_server: Annotated[str | None, Parameter(name=("--private-server", "-l"))] = None,
    name: Annotated[str, Parameter(name=("--name", "-n"))] = "",
    rack: Annotated[str, Parameter(name=("--rack", "-r"))] = "",
    storage_size: str = "0",
    dry_run: Annotated[bool, Parameter(name=("--dry-run", "-d"), negative="")] = False,
    connection: Connection = _HERE,
) -> None:
    """Register a custom SPU, so that the segment store of this name may join.

    Parameters
    ----------
    spu_id
        Its SPU id, unique in the cluster.
    public_server
        Its endpoint for clients, as host:port; by default the one that its store announces.
    private_server
        Its endpoint for other SPUs, as host:port; by default the one that its store announces.
    name
        The node id of its segment store; custom-spu-ID without it.
    rack
        The rack in which it stands.
    storage_size
        How much its partitions may hold, e.g. 20Gi; 0 for any amount.
    dry_run
        Only check whether it could be registered.
    """

    async def perform(client: Client, output: Output) -> None:
        found = await client.spus.register(
            spu_id,
            public=public_server or PublicEndpoint(),
            private=private_server or PrivateEndpoint(),
            name=name,
            rack=rack,
            storage_size=storage_size,
            dry_run=dry_run,
        )
        told = "could be registered" if dry_run else "registered successfully"
        output.done(f"custom-spu '{found.name}' {told}", found.model_dump(mode="json"))

    run_with_client(connection, perform)


def unregister(
    *,
    spu_id: Annotated[int | None, Parameter(name=("--id", "-i"))] = None,
    name: Annotated[str | None, Parameter(name=("--name", "-n"))] = None,
    force: Annotated[bool, Parameter(name=("--force", "-f"), negative="")] = False,
    connection: Connection = _HERE,
) -> None:
    """Unregister a custom SPU; its segment store may not join any more.

    Parameters
    ----------
    spu_id
        Its SPU id.
    name
        Its name, instead of its id.
    force
        Unregister it although it holds replicas, which are then lost to the cluster.
    """
    if spu_id is not None and name is not None:
        raise CycloptsError(msg="the argument '--id' cannot be used with '--name'")
    spu = name if spu_id is None else spu_id
    if spu is None:
        raise CycloptsError(msg="unregister needs --id or --name")

    async def perform(client: Client, output: Output) -> None:
        gone = await client.spus.unregister(spu, force=force)
        output.done(f"custom-spu '{gone}' deleted", {"unregistered": gone})

    run_with_client(connection, perform)


def list_all(
    *, custom: Annotated[bool, Parameter(negative="")] = False, connection: Connection = _HERE
) -> None:
    """List the SPUs: id, name, status, type, rack, endpoints, and the state of their stores.

    A store is alive, down (silent), over (a controller ended its session), stopped (it shut down
    cleanly), refused (it lacks the join token), or unregistered (no SPU has its node id).

    Parameters
    ----------
    custom
        Only custom SPUs.
    """

    async def perform(client: Client, output: Output) -> None:
        spus = [one async for one in client.spus.list(custom=custom)]
        stores = [one async for one in client.stores.list()]
        joined = joined_by_name(spus, stores, custom=custom)
        output.rows(
            COLUMNS,
            [row(spu, store) for spu, store in joined],
            [record(spu, store) for spu, store in joined],
            empty="no spu",
        )

    run_with_client(connection, perform)


Joined = tuple[SpuDescription | None, NodeDescription | None]


def joined_by_name(
    spus: Sequence[SpuDescription], stores: Sequence[NodeDescription], *, custom: bool = False
) -> list[Joined]:
    """Each SPU with its store, in the order of the SPUs; then the stores that are none, unless
    only custom SPUs are asked for."""
    by_name = {one.node_id: one for one in stores}
    known = {one.name for one in spus}
    found: list[Joined] = [(one, by_name.get(one.name)) for one in spus]
    rest = [] if custom else [one for one in stores if one.node_id not in known]
    return found + [(None, one) for one in rest]


def row(spu: SpuDescription | None, store: NodeDescription | None) -> tuple[str, ...]:
    """Same order as `COLUMNS`."""
    return (*_registered(spu, store), *_stored(store))


def _registered(spu: SpuDescription | None, store: NodeDescription | None) -> tuple[str, ...]:
    address = NONE if store is None else f"{store.host}:{store.port}"
    if spu is None:
        name, rack = (store.node_id, store.rack) if store is not None else ("", "")
        return (NONE, name, NONE, NONE, rack or NONE, address, NONE)
    if spu.refused:
        return (NONE, spu.name, REFUSED, NONE, spu.spec.rack or NONE, address, NONE)
    return (
        str(spu.spec.spu_id),
        spu.name,
        status(spu),
        spu.spec.type.value,
        spu.spec.rack or NONE,
        _announced(tables.public_place(spu.spec.public), address, spu.spec.public.ingress == ()),
        _announced(
            tables.private_place(spu.spec.private), address, spu.spec.private == PrivateEndpoint()
        ),
    )


def _announced(place: str, address: str, is_default: bool) -> str:
    """The place, or the address that the store announces if none was registered."""
    return address if is_default else place


def status(spu: SpuDescription) -> str:
    """``online``, ``offline`` or ``Init``, as Fluvio prints it."""
    if spu.deleting:
        return "deleting"
    return "Init" if spu.resolution is SpuResolution.INIT else spu.resolution.value


def _stored(store: NodeDescription | None) -> tuple[str, ...]:
    if store is None:
        return ("away", NONE, NONE, NONE, NONE, NONE)
    return (
        store_state(store),
        store.log,
        "yes" if store.draining else "no",
        str(store.containers),
        str(store.containers_open),
        str(store.containers_followed),
    )


def record(spu: SpuDescription | None, store: NodeDescription | None) -> Mapping[str, object]:
    """The store's fields, as `segstore list` has them, and the fields of the SPU."""
    name = spu.name if spu is not None else store.node_id if store is not None else ""
    told: dict[str, object] = {"node_id": name, "live": False}
    if store is not None:
        told = store.model_dump(mode="json")
    if spu is None:
        return {**told, "registered": False}
    if spu.refused:
        return {**told, "registered": False, "refused": True}
    spec = spu.spec
    return {
        **told,
        "registered": True,
        "spu_id": spec.spu_id,
        "status": spu.resolution.value,
        "type": spec.type.value,
        "rack": spec.rack,
        "public": tables.public_place(spec.public),
        "private": tables.private_place(spec.private),
        "storage_size_bytes": spec.storage_size_bytes,
        "group": spu.group,
        "deleting": spu.deleting,
    }
