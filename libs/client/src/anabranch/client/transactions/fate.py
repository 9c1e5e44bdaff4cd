"""This process's knowledge of a transaction's outcome, and the writers to notify at once.

State: the last description, and the state, which is None from the request to commit until its
answer. An outcome is irrevocable, so it is learnt once: pinging stops, and writing raises
TransactionEnded. A transaction and its parts in this process share one.
"""

from collections.abc import Callable

from anabranch.client.backoff import Backoff
from anabranch.client.transactions.calls import TransactionCalls, ended, look_up
from anabranch.client.transactions.pings import PingEntry, Pings
from anabranch.common.contracts.transactions import TransactionInfo, TransactionPinged
from anabranch.common.errors import (
    AnabranchError,
    OutcomeUnknown,
    Retry,
    SegmentNotFound,
    SegmentSealed,
    TransactionEnded,
    TransactionNotFound,
)
from anabranch.common.model.transaction import LEASE_MS_MIN, TransactionState
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.logger import get_logger

_log = get_logger(__name__)

Listener = Callable[[AnabranchError], None]


class Fate:
    """A transaction's outcome as known here. Without `pings`, it is not kept alive from here."""

    def __init__(self, info: TransactionInfo, calls: TransactionCalls, pings: Pings | None) -> None:
        self.transaction_id = info.transaction_id
        self.info = info
        self.state: TransactionState | None = info.state
        self.calls = calls
        self._listeners: list[Listener] = []
        self._pings = pings
        self._life = (calls.stream, info.incarnation)
        lease_ms = max(info.lease_ms, LEASE_MS_MIN)
        self._entry = PingEntry(info.transaction_id, lease_ms, self._pinged, self._end)
        self._was_exceeded = False
        if pings is not None and info.state is TransactionState.OPEN:
            pings.add(self._life, self._entry)

    @property
    def failure(self) -> TransactionEnded | None:
        """The error that writing raises, once the transaction has an outcome."""
        if self.state is None or not self.state.has_outcome:
            return None
        return ended(self.calls.stream, self.transaction_id, self.state)

    def attach(self, listener: Listener) -> None:
        """Register a listener for the transaction's end; if it has ended, call the listener at
        once.
        """
        failure = self.failure
        if failure is None:
            self._listeners.append(listener)
        else:
            listener(failure)

    def detach(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def learn(self, info: TransactionInfo) -> TransactionInfo:
        """Note the controller's description."""
        self.info = info
        self.learn_state(info.state)
        return info

    def learn_state(self, state: TransactionState) -> None:
        """Note the state; a late answer does not undo a later one."""
        if self.state is not None and self.state.has_outcome and not state.has_outcome:
            return
        self.state = state
        if state.has_outcome:
            self._end(ended(self.calls.stream, self.transaction_id, state))

    def learn_ended(self, error: TransactionEnded) -> None:
        """Note that the controller refused a request because the transaction has ended."""
        state = error.fields.get("state")
        if state in tuple(TransactionState):
            self.learn_state(TransactionState(str(state)))

    def keep_alive_no_more(self) -> None:
        """Stop pinging it. Idempotent."""
        if self._pings is not None:
            self._pings.discard(self._life, self._entry)

    def _end(self, error: AnabranchError) -> None:
        self.keep_alive_no_more()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(error.copy())

    def _not_found(self) -> TransactionNotFound:
        return TransactionNotFound(
            "there is no such transaction",
            stream=str(self.calls.stream), transaction=self.transaction_id,
        )  # fmt: skip

    def _pinged(self, result: TransactionPinged) -> None:
        if result.state is None:
            self._end(self._not_found())
        elif result.state.has_outcome:
            self.learn_state(result.state)
        elif result.refusal == "execution_exceeded" and not self._was_exceeded:
            self._was_exceeded = True
            _log.warning(
                "a transaction has reached its maximum duration and will be aborted",
                id=self.transaction_id,
                stream=str(self.calls.stream),
            )

    async def reason_of(
        self, error: AnabranchError, clock: Clock, backoff: Backoff
    ) -> AnabranchError:
        """The reason why a segment takes no more events: the transaction's end, or else `error`.

        It is never that the segment is sealed: if the controller does not explain this within the
        time of `backoff`, the reason is OutcomeUnknown.
        """
        has_no_segment = isinstance(error, SegmentSealed | SegmentNotFound)
        while True:
            try:
                self.learn(await self.calls.describe(self.transaction_id))
            except Retry:
                pass
            except AnabranchError as gone:
                return gone
            if (failure := self.failure) is not None:
                return failure
            if not has_no_segment:
                return error
            pause_s = backoff.failed(clock.monotonic())
            if pause_s is None:
                return OutcomeUnknown(
                    "the outcome of the transaction is unknown",
                    remedy=look_up(self.calls.stream, self.transaction_id),
                    stream=str(self.calls.stream), transaction=self.transaction_id,
                    cause=error.code,
                )  # fmt: skip
            await clock.sleep(pause_s)
