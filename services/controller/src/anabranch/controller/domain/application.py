"""The committed and open versions of an application in a stream; each version commits once. Pure.

    ┌──────────────┬──────────────────────┬──────────────────────────────────────────┐
    │ from         │ event                │ to                                       │
    ├──────────────┼──────────────────────┼──────────────────────────────────────────┤
    │ any          │ ApplicationOpened    │ that version open by that transaction    │
    │ v open by t  │ ApplicationCommitted │ v committed by t, nothing open           │
    │ any          │ ApplicationForgotten │ nothing committed, nothing open          │
    └──────────────┴──────────────────────┴──────────────────────────────────────────┘

The commit of a version is appended together with the outcome of its transaction, in one atomic
batch. Only the transaction that is open here can therefore commit. A replaced transaction stays
open by itself until it is aborted or expires. The aggregate does not know whether the open
transaction is still alive: the controller that handles a begin looks, and replaces it if it is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, assert_never

from pydantic import Field, TypeAdapter

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.transactions import ApplicationDescription
from anabranch.common.errors import VersionPassed
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.model.names import ScopeName, StreamName, StreamRef


class ApplicationOpened(Contract):
    """Only this transaction can commit the version, and no lower version can commit any more."""

    kind: Literal["application_opened"] = "application_opened"
    schema_number: Literal[1] = 1
    scope: str
    stream: str
    incarnation: int
    application: str
    version: int
    transaction_id: str


class ApplicationCommitted(Contract):
    """The open version is committed."""

    kind: Literal["application_committed"] = "application_committed"
    schema_number: Literal[1] = 1
    version: int
    transaction_id: str


class ApplicationForgotten(Contract):
    """The application may begin at any version again; its open version cannot be committed."""

    kind: Literal["application_forgotten"] = "application_forgotten"
    schema_number: Literal[1] = 1


ApplicationEvent = Annotated[
    ApplicationOpened | ApplicationCommitted | ApplicationForgotten, Field(discriminator="kind")
]


@dataclass(frozen=True, slots=True)
class ApplicationRef:
    """An application of one incarnation of a stream."""

    stream: StreamRef
    incarnation: int
    application: str


@dataclass(frozen=True, slots=True)
class Application:
    """An application. `ref` None: it never began a version. In each pair of version and
    transaction, both are None if no version is committed, or none is open.
    """

    ref: StreamRef | None = None
    incarnation: int = 0
    application: str = ""
    committed_version: int | None = None
    committed_transaction: str | None = None
    open_version: int | None = None
    open_transaction: str | None = None


@dataclass(frozen=True, slots=True)
class OpenDecision:
    """The transaction that has the version, and the events to store before the answer.

    `answer`: "new", the version is given to this transaction; "open", the transaction got the
    version before, and may have been aborted meanwhile or never have been created; "committed".
    """

    events: Sequence[ApplicationEvent]
    answer: Literal["new", "open", "committed"]
    transaction_id: str


def evolve(app: Application, event: ApplicationEvent) -> Application:
    """The application after the event."""
    match event:
        case ApplicationOpened():
            return replace(
                app,
                ref=StreamRef(ScopeName(event.scope), StreamName(event.stream)),
                incarnation=event.incarnation,
                application=event.application,
                open_version=event.version,
                open_transaction=event.transaction_id,
            )
        case ApplicationCommitted():
            return replace(
                app,
                committed_version=event.version,
                committed_transaction=event.transaction_id,
                open_version=None,
                open_transaction=None,
            )
        case ApplicationForgotten():
            return Application(app.ref, app.incarnation, app.application)
        case _:
            assert_never(event)


def open_version(
    app: Application, of: ApplicationRef, version: int, transaction_id: str
) -> OpenDecision:
    """The transaction of that version: `transaction_id`, unless another one has it.

    An open lower version is given up: its transaction can never be committed. Raises VersionPassed
    if a later version is open or committed.
    """
    committed = app.committed_version
    if committed == version:
        assert app.committed_transaction is not None
        return OpenDecision((), "committed", app.committed_transaction)
    if committed is not None and committed > version:
        raise _passed(of, version, "committed", committed)
    if app.open_version == version:
        assert app.open_transaction is not None
        return OpenDecision((), "open", app.open_transaction)
    if app.open_version is not None and app.open_version > version:
        raise _passed(of, version, "open", app.open_version)
    return OpenDecision((_opened(of, version, transaction_id),), "new", transaction_id)


def replace_open(
    app: Application, of: ApplicationRef, version: int, expected_open: str, new: str
) -> OpenDecision:
    """Replace a transaction that was aborted or never created with `new`.

    If another transaction than `expected_open` is open, nothing is replaced, and the answer is that
    of `open_version`. Raises VersionPassed.
    """
    if _open(app) != (version, expected_open):
        return open_version(app, of, version, new)
    return OpenDecision((_opened(of, version, new),), "new", new)


def commit(app: Application, version: int, transaction_id: str) -> Sequence[ApplicationEvent]:
    """Commit the version by that transaction; no events if that was done. Raises VersionPassed."""
    asked = (version, transaction_id)
    if _committed(app) == asked:
        return ()
    if _open(app) != asked:
        raise VersionPassed(
            "the application has continued without this transaction",
            application=app.application,
            version=version,
            transaction=transaction_id,
        )
    return (ApplicationCommitted(version=version, transaction_id=transaction_id),)


def forget(app: Application) -> Sequence[ApplicationEvent]:
    """Forget the committed and open versions; no events if there are none."""
    if app.committed_version is None and app.open_version is None:
        return ()
    return (ApplicationForgotten(),)


def described(app: Application, application: str) -> ApplicationDescription:
    """The application's description, even if it never existed."""
    return ApplicationDescription(
        application=application,
        committed_version=app.committed_version,
        committed_transaction=app.committed_transaction,
        open_version=app.open_version,
        open_transaction=app.open_transaction,
    )


def _opened(of: ApplicationRef, version: int, transaction_id: str) -> ApplicationOpened:
    return ApplicationOpened(
        scope=of.stream.scope,
        stream=of.stream.stream,
        incarnation=of.incarnation,
        application=of.application,
        version=version,
        transaction_id=transaction_id,
    )


def _passed(of: ApplicationRef, version: int, what: str, present: int) -> VersionPassed:
    return VersionPassed(
        f"a later version of the application is {what}",
        application=of.application,
        version=version,
        present=present,
    )


def check(before: Application, after: Application) -> None:
    """Assert the invariants of one decision; the numbers are those of docs/invariants.md."""
    if before.ref is not None:
        assert _who(before) == _who(after), "APP-1: an application stays what it is"
    assert after.ref is not None, "APP-1: who begins has a name"
    for version, transaction in (_committed(after), _open(after)):
        assert (version is None) == (transaction is None), "APP-2: a version has a transaction"
    if after.committed_version is None:
        return
    if before.committed_version is not None:
        later = before.committed_version <= after.committed_version
        assert later, "APP-3: the committed version goes back only when all is forgotten"
    if _committed(before) != _committed(after):
        was_open = _open(before) == _committed(after)
        assert was_open, "APP-4: only what is open is committed, and never replaced"
    if after.open_version is not None:
        ahead = after.open_version > after.committed_version
        assert ahead, "APP-5: what is open comes after what is committed"


def _who(app: Application) -> tuple[StreamRef | None, int, str]:
    return app.ref, app.incarnation, app.application


def _committed(app: Application) -> tuple[int | None, str | None]:
    return app.committed_version, app.committed_transaction


def _open(app: Application) -> tuple[int | None, str | None]:
    return app.open_version, app.open_transaction


APPLICATION: Aggregate[Application, ApplicationEvent] = Aggregate(
    kind="application",
    initial=Application(),
    evolve=evolve,
    check=check,
    events=TypeAdapter(list[ApplicationEvent]),
    states=TypeAdapter(Application),
)
