"""Lists of scopes and streams by name, in pages. A page token is the last name of a page."""

from collections.abc import Iterator
from itertools import islice

from anabranch.common.contracts import queries
from anabranch.common.contracts.base import Contract
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, StreamName, StreamRef, is_internal, scope_name
from anabranch.common.model.stream import StreamState
from anabranch.controller.domain.kinds import SCOPES, STREAMS
from anabranch.controller.domain.stream.answers import described
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.desk.desk import QueryDesk, Table, found_scope
from anabranch.controller.handlers.desk.pages import page_of


async def list_scopes(desk: QueryDesk, query: queries.ListScopes) -> Contract:
    """The live scopes, sorted."""
    names = desk.mirror.names.of(SCOPES, after=query.page_token)
    page, following = paged(names, query.page_size)
    return queries.ScopeList(scopes=page, next_page_token=following)


async def describe_scope(desk: QueryDesk, query: queries.DescribeScope) -> Contract:
    """One scope. Raises ScopeNotFound."""
    scope = await found_scope(desk, scope_name(query.scope))
    return queries.ScopeDescription(scope=scope.name, incarnation=scope.incarnation)


async def list_streams(desk: QueryDesk, query: queries.ListStreams) -> Contract:
    """The scope's streams, sorted, without half-created ones. Raises ScopeNotFound."""
    scope = ScopeName((await found_scope(desk, scope_name(query.scope))).name)
    if query.details:
        return _described_page(desk, scope, query)
    names = (name for name, stream in _listed(desk, scope, query) if not _is_creating(stream))
    page, following = paged(names, query.page_size)
    return queries.StreamList(streams=page, next_page_token=following)


def _described_page(desk: QueryDesk, scope: ScopeName, query: queries.ListStreams) -> Contract:
    """The page ends early if the descriptions would not fit into one answer."""
    unreadable: list[str] = []

    def descriptions() -> Iterator[queries.StreamDescription]:
        for name, stream in _listed(desk, scope, query):
            if stream is None:
                unreadable.append(name)
            elif not _is_creating(stream):
                yield described(stream.state, stream.revision)

    found, more = page_of(descriptions(), query.page_size)
    names = tuple(description.stream for description in found)
    following = names[-1] if more else ""
    return queries.StreamList(
        streams=names,
        next_page_token=following,
        descriptions=found,
        unreadable=tuple(name for name in unreadable if not following or name < following),
    )


def _listed(
    desk: QueryDesk, scope: ScopeName, query: queries.ListStreams
) -> Iterator[tuple[str, Loaded[Stream] | None]]:
    """Names and streams without internal ones; the stream is None if it cannot be read."""
    for name in desk.mirror.names.of(STREAMS, scope, after=query.page_token, tag=query.tag):
        if is_internal(name):
            continue
        yield name, desk.mirror.readable_stream(StreamRef(scope, StreamName(name)))


def _is_creating(stream: Loaded[Stream] | None) -> bool:
    return stream is not None and stream.state.status is StreamState.CREATING


def paged(names: Iterator[str], size: int) -> tuple[tuple[str, ...], str]:
    """A page, and the token of the next page ("" for the last page)."""
    found = tuple(islice(names, size + 1))
    page = found[:size]
    return page, page[-1] if len(found) > size else ""


QUERIES: Table = {
    "list_scopes": (queries.ListScopes, list_scopes),
    "describe_scope": (queries.DescribeScope, describe_scope),
    "list_streams": (queries.ListStreams, list_streams),
}
