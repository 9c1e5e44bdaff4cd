"""The edge of the fold: an aggregate that cannot be folded stops alone.

If a message cannot be folded, because it is damaged or because of a defect, its aggregate keeps its
last state, answers with a named error, and is listed for operators. The shard continues with the
next message.

Owns: the sequences up to which messages of broken aggregates were skipped. `Family.damaged` holds
the broken aggregates; `containment` holds the list for operators.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.common.contracts.base import ReadToken
from anabranch.common.errors import Corrupt, Defect
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.eventsourcing.repository import unfolded
from anabranch.common.workflow.containment import FOLD, Containment, naming_defects
from anabranch.controller.domain.operations import Operation
from anabranch.controller.projections.family import Family


@dataclass(frozen=True, slots=True)
class Fold:
    """The consequences of one folded message; `subject` and `point` identify it.

    `finished`: the operations that ended with it; `has_work`: the aggregate has a next step now;
    `reshaped`: a stream's state or segments changed; `concerned`: other aggregates that may have
    waited for this change; `outcome`: the decision on a transaction, "committed" or the reason of
    its abort.
    """

    subject: str
    point: ReadToken
    reshaped: bool = False
    concerned: Sequence[str] = ()
    outcome: str = ""
    finished: Sequence[Operation] = ()
    has_work: bool = False


class Quarantine:
    """Folds messages and contains failures.

    `family_of(subject)` is the aggregate's family, or None for a subject of no aggregate; if a
    message of such a subject cannot be folded, `lose(subject, error)` is called.
    """

    def __init__(
        self,
        containment: Containment,
        fold: Callable[[EventMessage, ReadToken], Fold],
        family_of: Callable[[str], Family[Any] | None],
        lose: Callable[[str, Corrupt], None],
    ) -> None:
        self._containment = containment
        self._fold = fold
        self._family_of = family_of
        self._lose = lose
        self.passed_over: dict[str, int] = {}
        """By broken aggregate: the sequence of the last message that was not folded."""

    def fold(self, message: EventMessage, point: ReadToken) -> Fold:
        """Fold one message. Raises nothing that the message causes."""
        subject = message.subject
        family = self._family_of(subject)
        before = None if family is None else family.loaded.get(subject)
        try:
            with naming_defects("folding a domain event"):
                fold = self._fold(message, point)
        except Defect as defect:
            fold = Fold(subject, point)
            if family is None:
                self._containment.note(FOLD, subject, defect, park_at=1)
                self._lose(subject, unfolded(subject, message.revision, defect))
                return fold
            family.leave(subject, before, unfolded(subject, message.revision, defect))
        error = None if family is None else family.damaged.get(subject)
        if error is None:
            self.passed_over.pop(subject, None)
            self._containment.forgive(FOLD, subject)
            return fold
        self.passed_over[subject] = message.sequence
        if not self._containment.is_parked(FOLD, subject):
            self._containment.note(FOLD, subject, error, park_at=1)
        return fold
