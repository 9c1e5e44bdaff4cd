"""Performs the actions of a plan through the dispatchers, and waits until they are seen again.

A plan may hold actions on several kinds of objects; they are written kind by kind, in the order in
which the kinds first appear. An action whose object has changed since the decision does nothing,
and the next step decides again on what the watch has shown by then.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from anabranch.common.contracts.objects import ObjectKind
from anabranch.common.errors import OutcomeUnknown
from anabranch.controller.cluster.objects.dispatcher import Outcome, Result
from anabranch.controller.domain.cluster.actions import Action

SETTLE_S_MAX = 5.0


class Dispatches(Protocol):
    """A dispatcher, as controllers use it."""

    @property
    def kind(self) -> ObjectKind[Any, Any]: ...

    async def perform(self, actions: Sequence[Action]) -> Sequence[Outcome]: ...

    async def settled(self, key: str, revision: int, within_s: float) -> None: ...


class Done(NamedTuple):
    """How many actions took effect, and how many did not."""

    done: int
    refused: int


class Performer:
    """Performs actions on objects of several kinds."""

    def __init__(self, dispatchers: Iterable[Dispatches]) -> None:
        self._dispatchers: Mapping[str, Dispatches] = {one.kind.bucket: one for one in dispatchers}

    async def perform(self, actions: Sequence[Action]) -> Done:
        """Perform the actions, and wait until this controller sees their effects.

        Raises OutcomeUnknown (some of them may have taken effect), Overloaded.
        """
        by_kind: dict[str, list[Action]] = {}
        for action in actions:
            by_kind.setdefault(action.kind.bucket, []).append(action)
        done = 0
        for bucket, chosen in by_kind.items():
            done += await self._perform(self._dispatchers[bucket], chosen)
        return Done(done, len(actions) - done)

    async def _perform(self, dispatcher: Dispatches, actions: Sequence[Action]) -> int:
        outcomes = await dispatcher.perform(actions)
        done = [
            (outcome.revision, action.object.key)
            for action, outcome in zip(actions, outcomes, strict=True)
            if outcome.result is Result.DONE
        ]
        if done:
            revision, key = max(done)
            await dispatcher.settled(key, revision, SETTLE_S_MAX)
        if any(one.result in (Result.UNKNOWN, Result.NOT_TRIED) for one in outcomes):
            raise OutcomeUnknown(
                "some changes of objects have an unknown outcome", kind=dispatcher.kind.word
            )
        return len(done)
