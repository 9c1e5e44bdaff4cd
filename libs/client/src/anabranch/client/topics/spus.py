"""SPUs and SPU groups: register, scale, delete and list them."""

from collections.abc import AsyncIterator, Mapping

from anabranch.client.topics.values import Size, size_bytes
from anabranch.client.wire.control import QUERY_TIMEOUT_S, A, ControlPlane
from anabranch.common.contracts.queries import PAGE_SIZE_MAX, Query
from anabranch.common.contracts.spus import (
    CreateSpuGroup,
    DeleteSpuGroup,
    ListSpuGroups,
    ListSpus,
    RegisterSpu,
    ScaleSpuGroup,
    SpuDescription,
    SpuGroupDescribed,
    SpuGroupDescription,
    SpuGroupList,
    SpuList,
    SpuRegistered,
    SpuUnregistered,
    UnregisterSpu,
)
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.objects import (
    GIB,
    Ingress,
    PrivateEndpoint,
    PublicEndpoint,
    SpuGroupSpec,
    SpuSpec,
)

_PUBLIC = PublicEndpoint()
_PRIVATE = PrivateEndpoint()


class Spus:
    """The SPUs of a cluster; `client.spus`. Draining them is part of `client.stores`.

    ::

        await client.spus.register(5001, public="10.0.0.7:9005", private="10.0.0.7:9006")
        async for spu in client.spus.list():
            print(spu.spec.spu_id, spu.name, spu.resolution)
    """

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def register(
        self,
        spu_id: int,
        *,
        public: PublicEndpoint | str = _PUBLIC,
        private: PrivateEndpoint | str = _PRIVATE,
        name: str = "",
        rack: str = "",
        storage_size: Size = 0,
        dry_run: bool = False,
    ) -> SpuDescription:
        """Register a custom SPU, so that the store with the node id `name` may join.

        Endpoints may be text, as ``host:port``. `name`: ``custom-spu-<id>`` if empty.
        `storage_size`: how much its partitions may hold, in bytes or as "20Gi"; 0: without a limit.
        `dry_run`: only check. It may be repeated. Raises SpuExists, InvalidRequest.

        ::

            await client.spus.register(5001, public="10.0.0.7:9005", rack="zone-1")
        """
        spec = SpuSpec(
            spu_id=spu_id,
            public=_public(public),
            private=_private(private),
            rack=rack,
            storage_size_bytes=size_bytes(storage_size),
        )
        query = RegisterSpu(spec=spec, name=name, dry_run=dry_run)
        return (await self._ask("register_spu", query, SpuRegistered)).spu

    async def unregister(self, spu: int | str, *, force: bool = False) -> str:
        """Unregister a custom SPU by its id or name; returns its name.

        Raises SpuNotFound; Conflict for a managed SPU, and for one that still holds replicas,
        unless `force`.

        ::

            await client.spus.unregister(5001)
        """
        if isinstance(spu, str):
            query = UnregisterSpu(name=spu, force=force)
        else:
            query = UnregisterSpu(spu_id=spu, force=force)
        return (await self._ask("unregister_spu", query, SpuUnregistered)).name

    async def list(self, *, custom: bool = False) -> AsyncIterator[SpuDescription]:
        """The SPUs by id, then the stores that were refused; `custom`: only custom SPUs.

        ::

            online = [spu.name async for spu in client.spus.list() if spu.resolution == "online"]
        """
        token = ""
        while True:
            page = await self.page(token, custom=custom)
            for spu in page.spus:
                yield spu
            if not (token := page.next_page_token):
                return

    async def page(
        self, page_token: str = "", page_size: int = PAGE_SIZE_MAX, *, custom: bool = False
    ) -> SpuList:
        """One page of the SPUs, from the start or from an earlier page's token.

        ::

            first = await client.spus.page(page_size=10)
        """
        query = ListSpus(custom=custom, page_token=page_token, page_size=page_size)
        return await self._ask("list_spus", query, SpuList)

    async def _ask(self, name: str, query: Query, answer: type[A]) -> A:
        return await self._control.query(name, query, answer, timeout_s=QUERY_TIMEOUT_S)


class SpuGroups:
    """The SPU groups of a cluster; `client.spu_groups`. A provisioner runs their SPUs.

    ::

        await client.spu_groups.create("main", replicas=3, min_id=1)
        await client.spu_groups.scale("main", 5)
    """

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def create(
        self,
        name: str,
        *,
        replicas: int = 1,
        min_id: int = 0,
        rack: str = "",
        storage_size: Size = GIB,
        env: Mapping[str, str] | None = None,
    ) -> SpuGroupDescription:
        """Create a group of `replicas` SPUs with the ids from `min_id` on.

        `storage_size`: of each SPU, in bytes or as "20Gi". `env`: environment of their processes.
        It may be repeated. Raises InvalidName, SpuGroupExists (with another spec), InvalidRequest.

        ::

            await client.spu_groups.create("main", replicas=3, min_id=1, storage_size="20Gi")
        """
        spec = SpuGroupSpec(
            replicas=replicas,
            min_id=min_id,
            rack=rack,
            storage_size_bytes=size_bytes(storage_size),
            env=tuple(sorted((env or {}).items())),
        )
        query = CreateSpuGroup(name=name, spec=spec)
        return (await self._ask("create_spu_group", query, SpuGroupDescribed)).group

    async def scale(self, name: str, replicas: int) -> SpuGroupDescription:
        """Change the number of SPUs. New ones are started; those with the highest ids are drained
        and stopped, which continues after the call.

        Raises SpuGroupNotFound, InvalidRequest.

        ::

            await client.spu_groups.scale("main", 5)
        """
        query = ScaleSpuGroup(name=name, replicas=replicas)
        return (await self._ask("scale_spu_group", query, SpuGroupDescribed)).group

    async def delete(self, name: str) -> SpuGroupDescription:
        """Drain and stop all SPUs of the group, then forget it; this continues after the call.

        Raises SpuGroupNotFound.

        ::

            await client.spu_groups.delete("main")
        """
        query = DeleteSpuGroup(name=name)
        return (await self._ask("delete_spu_group", query, SpuGroupDescribed)).group

    async def list(self) -> AsyncIterator[SpuGroupDescription]:
        """The SPU groups by name.

        ::

            names = [group.name async for group in client.spu_groups.list()]
        """
        token = ""
        while True:
            query = ListSpuGroups(page_token=token)
            page = await self._ask("list_spu_groups", query, SpuGroupList)
            for group in page.groups:
                yield group
            if not (token := page.next_page_token):
                return

    async def _ask(self, name: str, query: Query, answer: type[A]) -> A:
        return await self._control.query(name, query, answer, timeout_s=QUERY_TIMEOUT_S)


def _public(given: PublicEndpoint | str) -> PublicEndpoint:
    if isinstance(given, PublicEndpoint):
        return given
    host, port = _host_and_port(given, _PUBLIC.port)
    return PublicEndpoint(port=port, ingress=(Ingress(hostname=host),))


def _private(given: PrivateEndpoint | str) -> PrivateEndpoint:
    if isinstance(given, PrivateEndpoint):
        return given
    host, port = _host_and_port(given, _PRIVATE.port)
    return PrivateEndpoint(host=host, port=port)


def _host_and_port(text: str, default_port: int) -> tuple[str, int]:
    """``host:port``, ``[v6]:port`` or a host alone. Raises InvalidRequest."""
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise InvalidRequest(f"{text[:100]!r} is not an endpoint", remedy="write it as host:port")
    return host, int(port)
