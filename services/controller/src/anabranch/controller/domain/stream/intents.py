"""What a stream has accepted to do and has not ended yet: at most one of each kind, in order.

The first one is being performed, the others wait; each carries the commands that want it, so the
same wish joins it, and another one of the same kind is Busy until it has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from anabranch.common.model.names import SegmentId
from anabranch.controller.domain.stream.rows import SegmentOffsets, SegmentRanges


class IntentKind(StrEnum):
    CREATE = "create"
    SCALE = "scale"
    TRUNCATE = "truncate"
    SEAL = "seal"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """`sealed` are replaced by `created` (in the order of their numbers), which begin
    `stream_epoch`. `is_made`: the new segments exist."""

    stream_epoch: int
    sealed: tuple[SegmentId, ...]
    created: SegmentRanges
    is_made: bool = False

    def count_after(self, present_count: int) -> int:
        """How many segments there will be of the `present_count` of now."""
        return present_count - len(self.sealed) + len(self.created)


@dataclass(frozen=True, slots=True)
class TruncationPlan:
    """The stream shall begin at `cut`."""

    cut: SegmentOffsets


@dataclass(frozen=True, slots=True)
class Intent:
    """`revision`: at which it was decided, for the stamp of requests to the stores."""

    kind: IntentKind
    revision: int
    since_ms: int
    commands: tuple[str, ...]
    scale: ScalePlan | None = None
    truncation: TruncationPlan | None = None


Intents = tuple[Intent, ...]
"""In the order in which they were accepted."""


def find(intents: Intents, kind: IntentKind) -> Intent | None:
    """The one of that kind, if it is pending."""
    return next((intent for intent in intents if intent.kind is kind), None)


def joined(intents: Intents, kind: IntentKind, command_id: str) -> Intents:
    """One more command wants the pending one of that kind."""
    return tuple(
        replace(intent, commands=(*intent.commands, command_id)) if intent.kind is kind else intent
        for intent in intents
    )


def without(intents: Intents, kind: IntentKind) -> Intents:
    """The one of that kind has ended."""
    return tuple(intent for intent in intents if intent.kind is not kind)


def commands_of(intents: Sequence[Intent]) -> tuple[str, ...]:
    """The commands that wait for any of them."""
    return tuple(command for intent in intents for command in intent.commands)
