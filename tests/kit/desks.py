"""Desks and contexts of which a test gives only what it is about."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

from anabranch.common.contracts import queries
from anabranch.common.contracts.container_queries import PlacementChange
from anabranch.common.errors import InvalidRequest, Unavailable
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.ports import EventStore
from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.domain.policies.profile import FAST
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.deciding.desk import CommandDesk
from anabranch.controller.handlers.desk.desk import QueryDesk
from anabranch.controller.handlers.desk.kept_answers import KeptAnswers
from anabranch.controller.projections.histories import Histories
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.scaling import ScalingStates
from anabranch.controller.workflows.observed import Observer
from anabranch.controller.workflows.repositories import Repositories

DAY_MS = 24 * 3600 * 1000


class Missing:
    """In the place of what a test does not give: whoever uses it fails."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"the test gave no {self._what}, and {name} of it was used")


def missing(what: str) -> Any:
    """See `Missing`."""
    return Missing(what)


def query_desk(mirror: Mirror, **given: Any) -> QueryDesk:
    """A desk that answers from the mirror."""
    fields: dict[str, Any] = {
        "mirror": mirror,
        "history": _known_history,
        "kept": KeptAnswers(),
        "locate": lambda _segments: (),
        "list_containers": tuple,
        "list_nodes": tuple,
        "rate": lambda _segment: None,
        "scaling": ScalingStates(FAST, SystemClock()),
        "segment_lengths": one_by_one(_no_length),
        "change_placement": _not_here,
        "transactions": missing("transactions"),
        "writer_times": None,
        "watermark_log": missing("watermark_log"),
        "last_look": lambda _stream, _incarnation: None,
        "progress": tuple,
        "controller_id": "",
        "ask_peers": _no_peers,
        "parked": missing("parked"),
        "cluster": missing("cluster"),
        "topics": missing("topics"),
        "now_ms": SystemClock().now_ms,
        "observer": Observer(),
    }
    return QueryDesk(**(fields | given))


def command_desk(store: EventStore, **given: Any) -> CommandDesk:
    """A desk that decides on what is in the store, and answers nobody."""
    fields: dict[str, Any] = {
        "repositories": Repositories(store, SeededIds(1)),
        "histories": Histories(HistoryChunks(store, SeededIds(3))),
        "require_not_parked": lambda _subject: None,
        "clock": SystemClock(),
        "store_clock": StoreClock(),
        "reply": _nobody_listens,
        "observer": Observer(),
    }
    return CommandDesk(**(fields | given))


async def _nobody_listens(_inbox: str, _answer: bytes) -> None:
    return


async def _known_history(stream: Stream) -> History:
    known = History(stream.epochs)
    return known.ended(stream.sealed) if stream.sealed else known


def one_by_one(
    ask: Callable[[str], Awaitable[int]],
) -> Callable[[Sequence[str]], Awaitable[Sequence[int]]]:
    """The lengths of several segments, by one question for each."""

    async def lengths(segments: Sequence[str]) -> Sequence[int]:
        return [await ask(segment) for segment in segments]

    return lengths


async def _no_length(segment: str) -> int:
    raise Unavailable("this controller reaches no segment stores", segment=segment)


async def _not_here(_change: PlacementChange) -> queries.ContainerDescription:
    raise InvalidRequest("this controller changes no placements")


async def _no_peers(_name: str, _payload: bytes, _timeout_s: float) -> list[tuple[str, bytes]]:
    return []
