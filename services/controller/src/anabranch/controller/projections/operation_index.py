"""Index of operations: the aggregate that remembers each, and all operations sorted by id.

The index forgets an operation when its aggregate does. Callers choose ids; if two aggregates have
the same id, the index names the one that received it last.
"""

import bisect
from collections.abc import Iterator

from anabranch.common.contracts.commands import OperationState
from anabranch.controller.domain.operations import Operation, Operations

UNSORTED_MAX = 1024
"""New ids that may wait unsorted, beyond as many as there are operations."""


class OperationIndex:
    """The index that the mirror maintains as it folds."""

    def __init__(self) -> None:
        self._subjects: dict[str, str] = {}
        self._sorted: list[str] = []
        """Every id of `_subjects` is here or in `_new`; forgotten ids may be here as well."""
        self._new: list[str] = []
        self._running: set[str] = set()
        self._failed: set[str] = set()

    def __len__(self) -> int:
        return len(self._subjects)

    def keep(self, subject: str, before: Operations, after: Operations) -> None:
        """The aggregate remembered `before` and remembers `after` now."""
        if before is after:
            return
        known = {o.operation: o for o in before}
        for operation in after:
            was = known.pop(operation.operation, None)
            if was is not operation:
                self._learn(subject, operation, is_new=was is None)
        for forgotten in known:
            if self._subjects.get(forgotten) == subject:
                del self._subjects[forgotten]
                self._running.discard(forgotten)
                self._failed.discard(forgotten)
        if len(self._new) > len(self._subjects) + UNSORTED_MAX:
            self._sort()

    def _learn(self, subject: str, operation: Operation, *, is_new: bool) -> None:
        name = operation.operation
        if is_new:
            self._subjects[name] = subject
            self._new.append(name)
        for state, names in (
            (OperationState.RUNNING, self._running),
            (OperationState.FAILED, self._failed),
        ):
            if operation.state is state:
                names.add(name)
            else:
                names.discard(name)

    def subject_of(self, operation: str) -> str | None:
        """The subject of the aggregate that remembers the operation."""
        return self._subjects.get(operation)

    def is_in(self, state: str, operation: str) -> bool:
        """Whether the operation is in that state: "running", "failed", or "all" for any."""
        if state == "all":
            return True
        return operation in (self._running if state == "running" else self._failed)

    def following(self, after: str) -> Iterator[tuple[str, str]]:
        """(id, subject) of the operations whose ids sort after `after`; use it before the next
        await.
        """
        self._sort()
        for at in range(bisect.bisect_right(self._sorted, after), len(self._sorted)):
            operation = self._sorted[at]
            subject = self._subjects.get(operation)
            if subject is not None:
                yield operation, subject

    def _sort(self) -> None:
        """Sort on demand: cheap for a few new ids behind many sorted ones."""
        if self._new:
            found = {o for o in self._new if o in self._subjects}
            kept = [o for o in self._sorted if o in self._subjects and o not in found]
            self._sorted = sorted([*kept, *sorted(found)])
            self._new = []
