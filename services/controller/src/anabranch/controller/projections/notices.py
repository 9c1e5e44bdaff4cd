"""The consequences of each folded message: runners to wake, shapes to export, notices to publish.

The listener is silent until the mirror has caught up with the past. A start therefore publishes no
notice for old operations; a sweep finds the pending work.
"""

import asyncio
from collections.abc import Callable

import structlog

from anabranch.common.contracts.base import ReadToken
from anabranch.common.contracts.commands import OperationStatus
from anabranch.controller.projections.quarantine import Fold

NOTICES_WAITING_MAX = 10_000

_log = structlog.get_logger(__name__)


def _nobody(_subject: str) -> None:
    return


def _nothing(_subject: str, _outcome: str) -> None:
    return


class FoldListener:
    """Passed to the mirror as `on_fold`. The callbacks take subjects and must not wait.

    `on_outcome` takes a transaction's subject and its outcome.
    """

    def __init__(
        self,
        wake: Callable[[str], None],
        on_reshaped: Callable[[str], None] = _nobody,
        on_outcome: Callable[[str, str], None] = _nothing,
    ) -> None:
        self._wake = wake
        self._on_reshaped = on_reshaped
        self._on_outcome = on_outcome
        self._live = False
        self._notices: asyncio.Queue[OperationStatus] = asyncio.Queue(NOTICES_WAITING_MAX)

    def go_live(self) -> None:
        """Treat messages that are folded from now on as news."""
        self._live = True

    def __call__(self, fold: Fold) -> None:
        """Process a folded message. Never waits."""
        if not self._live:
            return
        if fold.has_work:
            self._wake(fold.subject)
        for subject in fold.concerned:
            self._wake(subject)
        if fold.reshaped:
            self._on_reshaped(fold.subject)
        if fold.outcome:
            self._on_outcome(fold.subject, fold.outcome)
        for operation in fold.finished:
            notice = OperationStatus(
                operation=operation.operation,
                state=operation.state,
                read_token=ReadToken(shard=fold.point.shard, sequence=fold.point.sequence),
                error=operation.error,
            )
            try:
                self._notices.put_nowait(notice)
            except asyncio.QueueFull:
                # A caller that waits for it queries the operation instead.
                _log.warning("dropped a notice", operation=notice.operation)

    async def next_notice(self) -> OperationStatus:
        """The next operation to announce."""
        return await self._notices.get()
