"""The things that the parts of an open table share: the ways to its stores, and how long to try."""

from dataclasses import dataclass

from anabranch.client.backoff import Backoff
from anabranch.client.runtime import Runtime
from anabranch.client.settings import BackoffSettings, TableSettings
from anabranch.client.tables.fate import TableFate
from anabranch.client.wire.control import SegmentDirectory
from anabranch.client.wire.segment_calls import ANSWER_TIME_S, NewRequest, SegmentCalls
from anabranch.common.errors import (
    AnabranchError,
    Fenced,
    OutcomeUnknown,
    Retry,
    SegmentNotFound,
    Unavailable,
)
from anabranch.common.wire.messages import DescribeTable, M, Request, TableDescribed


@dataclass(frozen=True, slots=True)
class TableParts:
    """The ways of one open table. All calls are requests that may be repeated."""

    fate: TableFate
    directory: SegmentDirectory
    runtime: Runtime
    settings: TableSettings

    def new_backoff(self, retry_timeout_s: float | None = None) -> Backoff:
        """The backoff of one series of attempts."""
        bound_s = self.settings.retry_timeout_s if retry_timeout_s is None else retry_timeout_s
        return Backoff(BackoffSettings(), self.runtime.rng, bound_s)

    async def ask(
        self,
        segment: str,
        request: NewRequest,
        expected: type[M],
        *,
        timeout_s: float = ANSWER_TIME_S,
        retry_timeout_s: float | None = None,
        payload: bytes = b"",
    ) -> tuple[M, bytes]:
        """Ask the store that serves the segment, until it answers.

        Raises TableNotFound, Unavailable when the retry time is used up, and errors that a retry
        cannot cure.
        """
        clock, backoff = self.runtime.clock, self.new_backoff(retry_timeout_s)
        calls = SegmentCalls(segment, directory=self.directory, clock=clock, backoff=backoff)
        while True:
            try:
                return await calls.ask(request, expected, timeout_s=timeout_s, payload=payload)
            except (Retry, Fenced, OutcomeUnknown) as error:
                raise Unavailable(
                    "no store answered in time",
                    table=str(self.fate.table), segment=segment, cause=error.code, said=str(error),
                ) from error  # fmt: skip
            except SegmentNotFound as error:
                named = await self.named(error)
                pause_s = backoff.failed(clock.monotonic())
                if pause_s is None or not isinstance(named, Retry):
                    raise named from error
            await clock.sleep(pause_s)

    async def describe(self, segment: str) -> TableDescribed:
        """The partition as its store has it now. Raises as `ask`."""

        def request(container_epoch: int) -> Request:
            return DescribeTable(segment=segment, container_epoch=container_epoch)

        return (await self.ask(segment, request, TableDescribed))[0]

    async def named(self, error: AnabranchError) -> AnabranchError:
        """The table's error for a store's, see `TableFate.named`. If the controller does not say
        what became of the table, its own error."""
        try:
            return await self.fate.named(error)
        except AnabranchError as unclear:
            return unclear
