"""Performs the actions of a plan through the dispatchers, and waits until they are seen again.

A plan may hold actions on several kinds of objects; they are written kind by kind, in the order in
which the kinds first appear. An action whose object has changed since the decision does nothing,
and the next step decides again on the newer state.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from anabranch.common.contracts.objects import ObjectKind
from anabranch.common.errors import OutcomeUnknown
from anabranch.controller.cluster.objects.dispatcher import Outcome, Result
from anabranch.controller.domain.cluster.objects.actions import Action

SETTLE_S_MAX = 5.0


class Dispatches(Protocol):
    """A dispatcher, as controllers use it."""

    @property
    def kind(self) -> ObjectKind[Any, Any]: ...

    async def perform(self, actions: Sequence[Action]) -> Sequence[Outcome]: ...

    async def settled(self, key: str, revision: int, within_s: float) -> None: ...


class Performer:
    """Performs actions on objects of several kinds."""

    def __init__(self, dispatchers: Iterable[Dispatches]) -> None:
        self._dispatchers = {one.kind.bucket: one for one in dispatchers}

    async def step(self, actions: Sequence[Action]) -> float | None:
        """Perform the actions; returns 0 if another step is due at once, as in `Reconciler`.

        A refused action brings no step: the watch will show the change that came before it.
        """
        return 0.0 if actions and await self.perform(actions) else None

    async def perform(self, actions: Sequence[Action]) -> int:
        """Perform the actions, and wait until this controller sees their effects.

        Returns how many took effect. Raises OutcomeUnknown (some may have taken effect),
        Overloaded.
        """
        by_kind: dict[str, list[Action]] = {}
        for action in actions:
            by_kind.setdefault(action.kind.bucket, []).append(action)
        done = 0
        for bucket, chosen in by_kind.items():
            done += await self._perform(self._dispatchers[bucket], chosen)
        return done

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
