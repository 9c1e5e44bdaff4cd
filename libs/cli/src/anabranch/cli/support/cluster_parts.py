"""The parts about the cluster: its own lists, from a controller. Bounded, and without payloads."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from typing import TypeVar

from pydantic import BaseModel

from anabranch.cli.doctor.cluster_view import ClusterView
from anabranch.cli.doctor.servers import Servers
from anabranch.cli.support.document import Document, Part, Record, many, single
from anabranch.client import Client
from anabranch.common.errors import NotFound

T = TypeVar("T")

RECORDS_MAX = 20_000
GROUPS_DESCRIBED_MAX = 500
TABLES_DESCRIBED_MAX = 500


def cluster_parts(view: ClusterView, servers: Servers) -> tuple[Part, ...]:
    """The parts; each stands alone, so that one list that fails leaves the others."""

    async def states() -> AsyncIterator[Document]:
        yield single("cluster/overview.json", _plain(await view.known_overview()))
        members = await view.members()
        yield many("cluster/controllers.jsonl", map(_plain, members.controllers))
        yield many("cluster/stores.jsonl", map(_plain, members.stores))
        yield many("cluster/containers.jsonl", map(_plain, await view.containers()))

    async def work() -> AsyncIterator[Document]:
        pending = await view.work()
        note = "the first page only" if pending.more else ""
        yield many("cluster/work.jsonl", map(_plain, pending.work), note)
        yield many("cluster/parked.jsonl", map(_plain, await view.parked()))

    async def nats() -> AsyncIterator[Document]:
        yield single("nats/server.json", asdict(await servers.nats()))
        yield single("nats/account.json", asdict(await servers.account()))
        yield many("nats/streams.jsonl", map(asdict, (await servers.streams()).streams))
        yield single("nats/jetstream.json", (await servers.monitored()).status)
        yield many("nats/servers.jsonl", map(asdict, await servers.seen()))

    async def redis() -> AsyncIterator[Document]:
        yield single("redis/info.json", await servers.redis())

    listing = (
        ("streams", "scopes, and streams with their configurations", _streams),
        ("groups", "reader groups", _groups),
        ("tables", "key-value tables", _tables),
        ("operations", "operations that scopes and streams remember", _operations),
    )
    return (
        Part("cluster", "overview, controllers, stores and containers", states),
        Part("work", "pending and parked work", work),
        *(Part(name, about, _after(view, gather)) for name, about, gather in listing),
        Part("nats", "the NATS server, its account and its streams", nats),
        Part("redis", "the answer of Redis to INFO", redis),
    )


def _after(
    view: ClusterView, gather: Callable[[Client], AsyncIterator[Document]]
) -> Callable[[], AsyncIterator[Document]]:
    """The gathering, for a cluster that answers."""

    async def documents() -> AsyncIterator[Document]:
        await view.known_overview()
        async for document in gather(await view.client()):
            yield document

    return documents


async def _streams(client: Client) -> AsyncIterator[Document]:
    scopes = await _bounded(client.scopes.list())
    yield many("cluster/scopes.jsonl", ({"scope": name} for name in scopes), _note(scopes))
    found: list[Record] = []
    for scope in scopes:
        try:
            described = client.streams.describe_all(scope)
            found += map(_plain, await _bounded(described, RECORDS_MAX - len(found)))
        except NotFound:  # It was deleted meanwhile.
            continue
        if len(found) >= RECORDS_MAX:
            break
    yield many("cluster/streams.jsonl", found, _note(found))


async def _groups(client: Client) -> AsyncIterator[Document]:
    found: list[Record] = []
    for scope in await _bounded(client.scopes.list()):
        try:
            for name in await _bounded(client.reader_groups.list(scope)):
                if len(found) >= GROUPS_DESCRIBED_MAX:
                    break
                described = await client.reader_groups.describe(f"{scope}/{name}")
                found.append({"scope": scope, "group": name, **_plain(described)})
        except NotFound:  # It was deleted meanwhile.
            continue
    note = f"the first {GROUPS_DESCRIBED_MAX}" if len(found) >= GROUPS_DESCRIBED_MAX else ""
    yield many("cluster/groups.jsonl", found, note)


async def _tables(client: Client) -> AsyncIterator[Document]:
    found: list[Record] = []
    for scope in await _bounded(client.scopes.list()):
        try:
            for name in await _bounded(client.tables.list(scope)):
                if len(found) >= TABLES_DESCRIBED_MAX:
                    break
                found.append(_plain(await client.tables.describe(f"{scope}/{name}")))
        except NotFound:  # It was deleted meanwhile.
            continue
    note = f"the first {TABLES_DESCRIBED_MAX}" if len(found) >= TABLES_DESCRIBED_MAX else ""
    yield many("cluster/tables.jsonl", found, note)


async def _operations(client: Client) -> AsyncIterator[Document]:
    found = await _bounded(client.operations.list("all"))
    yield many("cluster/operations.jsonl", map(_plain, found), _note(found))


async def _bounded(source: AsyncIterator[T], count_max: int = RECORDS_MAX) -> list[T]:
    found: list[T] = []
    async for each in source:
        if len(found) >= count_max:
            break
        found.append(each)
    return found


def _plain(message: BaseModel) -> Record:
    return message.model_dump(mode="json", exclude={"ok"})


def _note(found: Sequence[object]) -> str:
    return f"the first {RECORDS_MAX:,}" if len(found) >= RECORDS_MAX else ""
