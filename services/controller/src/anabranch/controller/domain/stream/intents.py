"""A stream's intents: accepted work that has not ended, at most one of each kind, in order.

The first one is being performed, the others wait. Each carries the commands that want it: an equal
command joins it, and a different one of the same kind is Busy until it has ended. Transactions, not
commands, want a batch of commits, and the retention policy wants its truncations; they take their
turns among the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import SegmentRange, StreamConfig
from anabranch.controller.domain.stream.causes import MANUAL, EpochCause
from anabranch.controller.domain.stream.retention_set import Release
from anabranch.controller.domain.stream.rows import SegmentOffsets, SegmentRanges


class IntentKind(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    SCALE = "scale"
    TRUNCATE = "truncate"
    COMMIT = "commit"
    SEAL = "seal"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """`created` (in the order of their numbers) replace `sealed` and begin `stream_epoch`.
    `is_made`: the new segments exist. `cause`: of the epoch; MANUAL in a plan that was stored
    before there were causes.
    """

    stream_epoch: int
    sealed: tuple[SegmentId, ...]
    created: SegmentRanges
    is_made: bool = False
    cause: EpochCause = MANUAL

    def count_after(self, present_count: int) -> int:
        """The number of segments after the scale, given the present number."""
        return present_count - len(self.sealed) + len(self.created)


@dataclass(frozen=True, slots=True)
class TruncationPlan:
    """The stream shall begin at `cut`. `is_checked`: every segment of the cut can be truncated.

    `release`: the bytes that retention gives up by it; None: a command wants it. `passed_ms`: the
    cuts that were recorded up to that time lie at or before `cut`.
    """

    cut: SegmentOffsets
    is_checked: bool = False
    release: Release | None = None
    passed_ms: int = 0


@dataclass(frozen=True, slots=True)
class RollPlan:
    """The segments of the two epochs that a roll adds. `taken` hold the transactions' data, have
    those `lengths` and are sealed; `renewed` are open. All of them exist.
    """

    taken: SegmentRanges
    lengths: tuple[int, ...]
    renewed: SegmentRanges


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """A batch: transactions in commit order, and the stream epochs in which they were opened, all
    with the same reference epoch. `has_rolled`: a roll has brought their data into the stream.
    """

    reference_epoch: int
    transactions: tuple[str, ...]
    stream_epochs: tuple[int, ...]
    roll: RollPlan | None = None
    has_rolled: bool = False


@dataclass(frozen=True, slots=True)
class Intent:
    """`revision`: at which it was decided, for the stamp of requests to the stores. `config`: for
    an update, the configuration to put in force. `is_drained`: for a seal, whether no transaction
    is left.
    """

    kind: IntentKind
    revision: int
    since_ms: int
    commands: tuple[str, ...]
    scale: ScalePlan | None = None
    truncation: TruncationPlan | None = None
    commit: CommitPlan | None = None
    is_drained: bool = False
    config: StreamConfig | None = None


Intents = tuple[Intent, ...]
"""In the order in which they were accepted."""


def find(intents: Intents, kind: IntentKind) -> Intent | None:
    """The pending intent of that kind, if any."""
    return next((intent for intent in intents if intent.kind is kind), None)


def joined(intents: Intents, kind: IntentKind, command_id: str) -> Intents:
    """Add a command to the pending intent of that kind."""
    return tuple(
        replace(intent, commands=(*intent.commands, command_id)) if intent.kind is kind else intent
        for intent in intents
    )


def without(intents: Intents, kind: IntentKind) -> Intents:
    """Remove the intent of that kind, which has ended."""
    return tuple(intent for intent in intents if intent.kind is not kind)


def planned(intents: Intents) -> SegmentRanges:
    """Segments that will belong to a later epoch than the current one."""
    found: list[SegmentRange] = []
    for intent in intents:
        if intent.scale is not None:
            found.extend(intent.scale.created)
        if intent.commit is not None and (roll := intent.commit.roll) is not None:
            found.extend((*roll.taken, *roll.renewed))
    return tuple(found)


def accepted(intents: Intents, intent: Intent) -> Intents:
    """Add an intent: the last, but before the seal, which is performed when nothing else is
    pending.
    """
    seal = find(intents, IntentKind.SEAL)
    if seal is None:
        return (*intents, intent)
    return (*without(intents, IntentKind.SEAL), intent, seal)


def become_scale(intents: Intents, plan: ScalePlan) -> Intents:
    """Replace the update, whose turn has come, with the scale that it requires."""
    return tuple(
        replace(intent, kind=IntentKind.SCALE, scale=plan, config=None)
        if intent.kind is IntentKind.UPDATE
        else intent
        for intent in intents
    )


def changed(intents: Intents, intent: Intent) -> Intents:
    """Replace the intent of the same kind with `intent`."""
    return tuple(intent if other.kind is intent.kind else other for other in intents)


def commands_of(intents: Sequence[Intent]) -> tuple[str, ...]:
    """The commands that wait for any of them."""
    return tuple(command for intent in intents for command in intent.commands)
