"""Transactions and applications in the scenarios of the controller: how they are told of.

A transaction is of the stream s/x and has one id. Its commands are

    begin lease_ms=… [parts=1] [key=<application>:<version>] [execution_ms_max=…]
    ping [lease_ms=…]     add_part part=a     commit [parts=a,b] [writer_id=…] [timestamp_ms=…]
    abort                 expire              committed              aborted

each with ``at=<ms>``, 1000 if it is not said. Parts are told by their first digit. The answer of a
ping stands behind the state.

Those of an application are ``open version=… transaction=…``, ``replace version=… expected=…
new=…``, ``commit version=… transaction=…`` and ``forget``; what opening answered stands behind the
state.
"""

from collections.abc import Sequence

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.transactions import BeginTransaction
from anabranch.common.model.names import StreamRef, scope_name, stream_name
from anabranch.controller.domain import application
from anabranch.controller.domain.application import (
    APPLICATION,
    Application,
    ApplicationEvent,
    ApplicationRef,
    OpenDecision,
)
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.decide import Opening
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.invariants import TRANSACTION
from anabranch.controller.domain.transaction.state import Transaction, next_step

TRANSACTION_ID = "0123456789abcdef" * 2
NOW_MS = 1000


class TransactionStory:
    """A transaction and what is done to it."""

    def __init__(self) -> None:
        self.state = Transaction()
        self.answer = ""

    def command(self, fields: dict[str, object]) -> Sequence[TransactionEvent]:
        named = {name: str(value) for name, value in fields.items()}
        verb, now_ms = named["kind"], int(named.get("at", NOW_MS))
        parts = [letter * 32 for letter in named.get("parts", "").split(",") if letter]
        txn, time = self.state, named.get("timestamp_ms")
        match verb:
            case "begin":
                return [decide.opened(_begin(named), Opening(TRANSACTION_ID, 3, 2, now_ms))]
            case "ping":
                lease = named.get("lease_ms")
                return self._ping(None if lease is None else int(lease), now_ms)
            case "add_part":
                return decide.add_part(txn, named["part"] * 32)
            case "commit":
                return decide.commit(
                    txn,
                    parts,
                    writer_id=named.get("writer_id", ""),
                    timestamp_ms=None if time is None else int(time),
                    now_ms=now_ms,
                )
            case "abort":
                return decide.abort(txn, "asked", now_ms)
            case "expire":
                return decide.expire(txn, now_ms)
            case "committed":
                return decide.committed(txn, now_ms)
            case "aborted":
                return decide.aborted(txn, now_ms)
            case _:
                raise ValueError(verb)

    def _ping(self, lease_ms: int | None, now_ms: int) -> Sequence[TransactionEvent]:
        decision = decide.ping(self.state, lease_ms, now_ms)
        self.answer = f" pinged: {decision.state} left={decision.lease_left_ms}"
        self.answer += f" {decision.refusal}" if decision.refusal else ""
        return decision.events

    def store(self, events: Sequence[Contract]) -> None:
        typed = TRANSACTION.events.validate_python([event.model_dump() for event in events])
        after = TRANSACTION.apply(self.state, typed)
        if events:
            TRANSACTION.check(self.state, after)
        self.state = after

    def event(self, fields: dict[str, object]) -> Contract:
        return TRANSACTION.events.validate_python([fields])[0]

    def show(self) -> str:
        state, answer, self.answer = self.state, self.answer, ""
        has = "".join(part[0] for part in state.parts) or "-"
        counting = "".join(part[0] for part in state.committed_parts) or "-"
        return (
            f"= {state.status} deadline={state.deadline_ms} parts={has} committed={counting} "
            f"mark={state.writer_id}@{state.timestamp_ms} ended={state.ended_ms} "
            f"next={next_step(state)}{answer}"
        )


def _begin(named: dict[str, str]) -> BeginTransaction:
    name, _, version = named.get("key", "").partition(":")
    return BeginTransaction.model_validate(
        {
            "scope": "s",
            "stream": "x",
            "lease_ms": named["lease_ms"],
            "execution_ms_max": named.get("execution_ms_max", 0),
            "writer": named.get("writer", ""),
            "parts": bool(named.get("parts")),
            "key": {"application": name, "version": version} if name else None,
        }
    )


class ApplicationStory:
    """An application of a stream and what is done to it."""

    def __init__(self) -> None:
        self.state = Application()
        self.ref = ApplicationRef(StreamRef(scope_name("s"), stream_name("x")), 3, "app")
        self.answer = ""

    def command(self, fields: dict[str, object]) -> Sequence[ApplicationEvent]:
        named = {name: str(value) for name, value in fields.items()}
        verb, app, version = named["kind"], self.state, int(named.get("version", 0))
        match verb:
            case "open":
                transaction = named["transaction"]
                return self._told(application.open_version(app, self.ref, version, transaction))
            case "replace":
                expected, new = named["expected"], named["new"]
                return self._told(application.replace_open(app, self.ref, version, expected, new))
            case "commit":
                return application.commit(app, version, named["transaction"])
            case "forget":
                return application.forget(app)
            case _:
                raise ValueError(verb)

    def _told(self, decision: OpenDecision) -> Sequence[ApplicationEvent]:
        self.answer = f" answer: {decision.answer} {decision.transaction_id}"
        return decision.events

    def store(self, events: Sequence[Contract]) -> None:
        typed = APPLICATION.events.validate_python([event.model_dump() for event in events])
        after = APPLICATION.apply(self.state, typed)
        if events:
            APPLICATION.check(self.state, after)
        self.state = after

    def event(self, fields: dict[str, object]) -> Contract:
        return APPLICATION.events.validate_python([fields])[0]

    def show(self) -> str:
        state, answer, self.answer = self.state, self.answer, ""
        return (
            f"= committed={state.committed_version} by {state.committed_transaction} "
            f"open={state.open_version} by {state.open_transaction}{answer}"
        )
