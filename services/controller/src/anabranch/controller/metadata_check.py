"""Checks every subject of the event store, and repairs one aggregate.

`verify` folds every subject as a controller does and reports the messages that it cannot read. It
also reports damage that a later snapshot has healed, which does no harm.

`plan_repair` finds the last state of a damaged aggregate that can be trusted: the state before the
damage. Messages of a backup replace unreadable ones; if the backup has all of them, the repair
loses nothing. `perform_repair` appends the trusted state as a snapshot, under a revision that no
message ever had, and changes nothing else.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch.common.contracts.subjects import (
    event_stream_subjects,
    kind_of_subject,
    shard_of_subject,
)
from anabranch.common.errors import (
    AnabranchError,
    Corrupt,
    CorruptEvent,
    FormatTooNew,
    InvalidRequest,
    ObjectNotFound,
)
from anabranch.common.eventsourcing.gate import Membership, gate_after, membership_after
from anabranch.common.eventsourcing.message import (
    KIND_CHUNK,
    KIND_DAMAGED,
    KIND_SNAPSHOT,
    counted,
)
from anabranch.common.eventsourcing.ports import EventMessage, EventStore
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.controller.workflows.repositories import Repositories


@dataclass(frozen=True, slots=True)
class Finding:
    """An unreadable message or subject. `healed`: a later snapshot restores its aggregate."""

    subject: str
    error: AnabranchError
    healed: bool


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The effects of a repair before it is performed.

    `trusted` is the state that the repair appends, with its revision. `present` is the same state
    positioned behind the last stored message. `given_up` are the stored messages after `trusted`.
    """

    trusted: Loaded[Any]
    present: Loaded[Any]
    given_up: Sequence[EventMessage]
    from_backup: int
    """The number of messages that are readable only in the backup."""


async def verify(store: EventStore, repositories: Repositories) -> AsyncIterator[Finding | int]:
    """Yield every finding, and after each shard its message count. Raises Unavailable."""
    for shard in range(SHARD_COUNT):
        by_subject: defaultdict[str, list[EventMessage]] = defaultdict(list)
        async for message in store.scan(shard, event_stream_subjects(shard)):
            by_subject[message.subject].append(message)
        for subject, messages in by_subject.items():
            for finding in check_subject(subject, messages, repositories):
                yield finding
        yield sum(len(messages) for messages in by_subject.values())


def check_subject(
    subject: str, messages: Sequence[EventMessage], repositories: Repositories
) -> list[Finding]:
    """Return the findings among one subject's messages, which are sorted oldest first."""
    repository = repositories.of(subject)
    if repository is not None:
        return _check_aggregate(messages, repository)
    try:
        _OTHERS.get(kind_of_subject(subject), _check_unknown)(messages)
    except Corrupt as error:
        return [Finding(subject, error, healed=False)]
    return []


def _check_aggregate(
    messages: Sequence[EventMessage], repository: Repository[Any, Any]
) -> list[Finding]:
    found: list[Finding] = []
    loaded = Loaded(messages[0].subject, repository.aggregate.initial)
    is_broken = False
    for message in messages:
        if is_broken and message.kind != KIND_SNAPSHOT:
            continue
        try:
            loaded, is_broken = repository.fold(loaded, message), False
        except Corrupt as error:
            found.append(Finding(message.subject, error, healed=False))
            is_broken = True
        else:
            if message.kind == KIND_SNAPSHOT:
                found = [replace(finding, healed=True) for finding in found]
    return found


def _check_gate(messages: Sequence[EventMessage]) -> None:
    gate_after(messages)


def _check_member(messages: Sequence[EventMessage]) -> None:
    record = Membership()
    for message in messages:
        record = membership_after(record, message)


def _check_chunk(messages: Sequence[EventMessage]) -> None:
    only, *others = counted(messages)
    if others or only.kind != KIND_CHUNK:
        raise Corrupt(
            only.body.decode() if only.kind == KIND_DAMAGED else "not a history chunk",
            subject=only.subject,
            sequence=only.sequence,
        )


def _check_unknown(messages: Sequence[EventMessage]) -> None:
    raise Corrupt("the subject is of an unknown kind", subject=messages[0].subject)


_OTHERS: Mapping[str, Callable[[Sequence[EventMessage]], None]] = {
    "gate": _check_gate,
    "txngate": _check_gate,
    "member": _check_member,
    "history": _check_chunk,
    "txnout": _check_chunk,
}
"""Checks of the subjects that belong to no aggregate, by kind. Each raises Corrupt."""


async def plan_repair(
    store: EventStore,
    repositories: Repositories,
    subject: str,
    backed_up: Iterable[EventMessage] = (),
) -> RepairPlan | None:
    """Plan the repair of an aggregate; None if the aggregate can be read.

    `backed_up`: the subject's messages in a backup. Raises InvalidRequest (the subject cannot be
    repaired, or the backup is of another history), ObjectNotFound (the subject has no messages),
    CorruptEvent (no message can be trusted), FormatTooNew, Unavailable.
    """
    repository = repositories.of(subject) if subject.count(".") > 3 else None
    if repository is None:
        raise InvalidRequest(
            "only scopes, streams, reader groups, key-value tables, transactions and applications "
            "can be repaired",
            remedy="name a subject that `anabranch controller verify` lists; for gates, members, "
            "history and outcomes restore a backup",
            subject=subject,
        )
    messages = [message async for message in store.scan(shard_of_subject(subject), subject)]
    if not messages:
        raise ObjectNotFound("the subject has no messages", subject=subject)
    findings = [one for one in _check_aggregate(messages, repository) if not one.healed]
    if not findings:
        return None
    if isinstance(findings[0].error, FormatTooNew):
        raise findings[0].error  # The message is not damaged: a newer release reads it.
    return _plan(repository, messages, list(backed_up))


def _plan(
    repository: Repository[Any, Any],
    messages: Sequence[EventMessage],
    backed_up: Sequence[EventMessage],
) -> RepairPlan:
    numbered = list(_with_revisions(messages))
    live = {m.revision: m for m in counted(messages) if m.kind != KIND_DAMAGED}
    _require_same_history(live, backed_up)
    spare = {m.revision: m for m in backed_up if m.revision not in live}
    trusted = Loaded(messages[0].subject, repository.aggregate.initial)
    used: set[int] = set()
    for revision, message in sorted({**spare, **live}.items()):
        try:
            trusted = repository.fold(trusted, message)
        except Corrupt:
            if trusted.revision:
                break
            continue  # A remainder of messages whose state a later snapshot holds.
        used.add(revision)
    if not trusted.revision:
        raise CorruptEvent(
            "no message of the aggregate can be trusted",
            remedy="repeat with --from-backup and the URL of a backup",
            subject=messages[0].subject,
        )
    snapshots = [message.sequence for message in messages if message.kind == KIND_SNAPSHOT]
    return RepairPlan(
        trusted=trusted,
        present=replace(
            trusted,
            sequence=messages[-1].sequence,
            revision=max(numbered[-1][0], trusted.revision),
            snapshot_sequence=max(snapshots, default=0),
        ),
        given_up=[message for revision, message in numbered if revision > trusted.revision],
        from_backup=len(used & spare.keys()),
    )


def _with_revisions(messages: Sequence[EventMessage]) -> Iterator[tuple[int, EventMessage]]:
    """Yield each message with its revision; a damaged one counts one above the message before."""
    highest = 0
    for message in messages:
        highest = highest + 1 if message.kind == KIND_DAMAGED else max(highest, message.revision)
        yield highest, message


def _require_same_history(
    live: Mapping[int, EventMessage], backed_up: Sequence[EventMessage]
) -> None:
    for message in backed_up:
        present = live.get(message.revision)
        if present is not None and present.append_id != message.append_id:
            raise InvalidRequest(
                "the backup holds another history of the aggregate",
                remedy="name a backup of this very cluster",
                subject=message.subject,
                revision=message.revision,
            )


async def perform_repair(repositories: Repositories, plan: RepairPlan) -> int:
    """Append the trusted state; return its sequence. Raises WrongExpectedSequence."""
    repository = repositories.of(plan.present.subject)
    assert repository is not None, "a plan names an aggregate"
    return (await repository.snapshot(plan.present)).sequence
