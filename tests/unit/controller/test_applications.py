"""Applications: each version is committed once and in order, whoever tries, and how often."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.errors import VersionPassed
from anabranch.common.eventsourcing.message import KIND_SNAPSHOT
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.model.names import StreamRef, scope_name, stream_name
from anabranch.controller.domain import application
from anabranch.controller.domain.application import (
    APPLICATION,
    Application,
    ApplicationCommitted,
    ApplicationForgotten,
    ApplicationRef,
)
from kit.thorough import one_in

REF = ApplicationRef(StreamRef(scope_name("s"), stream_name("x")), 3, "app")


def opened(app: Application, version: int, transaction: str) -> Application:
    decision = application.open_version(app, REF, version, transaction)
    return APPLICATION.apply(app, decision.events)


NEW = Application()
OPEN = opened(NEW, 5, "t1")
COMMITTED = APPLICATION.apply(OPEN, [ApplicationCommitted(version=5, transaction_id="t1")])
NEXT = opened(COMMITTED, 7, "t2")
FORGOTTEN = APPLICATION.apply(NEXT, [ApplicationForgotten()])

ATTEMPTS = st.lists(
    st.tuples(st.sampled_from(["open", "replace", "commit"]), st.integers(0, 4), st.integers(0, 3)),
    max_size=40,
)


@given(attempts=ATTEMPTS)
@settings(max_examples=200 // one_in(4))
def test_each_version_is_committed_by_one_transaction_and_in_order(
    attempts: list[tuple[str, int, int]],
) -> None:
    app, committed = NEW, list[tuple[int, str]]()
    for count, (verb, version, other) in enumerate(attempts):
        before, new = app, f"t{count}"
        try:
            if verb == "open":
                stored = application.open_version(app, REF, version, new).events
            elif verb == "replace":
                decision = application.replace_open(
                    app, REF, version, app.open_transaction or f"t{other}", new
                )
                stored = decision.events
            else:
                stored = application.commit(app, version, app.open_transaction or f"t{other}")
        except VersionPassed:
            continue
        app = APPLICATION.apply(app, stored)
        if not stored:
            continue
        APPLICATION.check(before, app)
        committed += [
            (e.version, e.transaction_id) for e in stored if isinstance(e, ApplicationCommitted)
        ]

    versions = [version for version, _ in committed]
    assert versions == sorted(set(versions))
    assert len({transaction for _, transaction in committed}) == len(committed)


def test_whoever_asks_for_a_committed_version_gets_its_transaction() -> None:
    decision = application.open_version(NEXT, REF, 5, "t9")

    assert (decision.events, decision.answer, decision.transaction_id) == ((), "committed", "t1")


def test_an_application_that_never_was_is_described_as_one_that_has_done_nothing() -> None:
    told = application.described(NEW, "app")

    assert (told.application, told.committed_version, told.open_version) == ("app", None, None)


def test_an_application_is_described() -> None:
    told = application.described(NEXT, "app")

    assert (told.committed_version, told.committed_transaction) == (5, "t1")
    assert (told.open_version, told.open_transaction) == (7, "t2")


def test_a_snapshot_is_the_state() -> None:
    message = EventMessage(
        "subject", 1, 1, "a", KIND_SNAPSHOT, 1, 0, APPLICATION.encode_state(NEXT)
    )

    assert APPLICATION.fold(NEW, message) == NEXT


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (NEW, OPEN),
        (OPEN, replace(OPEN, open_transaction="t9")),
        (OPEN, COMMITTED),
        (COMMITTED, NEXT),
        (NEXT, FORGOTTEN),
        (FORGOTTEN, opened(FORGOTTEN, 1, "t3")),
    ],
)
def test_what_really_happens_breaks_none(before: Application, after: Application) -> None:
    APPLICATION.check(before, after)


@pytest.mark.parametrize(
    ("number", "before", "after"),
    [
        (1, OPEN, replace(OPEN, application="other")),
        (1, OPEN, replace(OPEN, incarnation=4)),
        (1, NEW, NEW),
        (2, NEW, replace(OPEN, open_transaction=None)),
        (2, OPEN, replace(COMMITTED, committed_version=None)),
        (3, NEXT, replace(NEXT, committed_version=4, committed_transaction="t0")),
        (4, COMMITTED, replace(COMMITTED, committed_transaction="t9")),
        (4, OPEN, replace(COMMITTED, committed_transaction="t9")),
        (4, NEXT, replace(COMMITTED, committed_version=6, committed_transaction="t2")),
        (5, COMMITTED, replace(NEXT, open_version=5)),
    ],
)
def test_a_decision_that_breaks_an_invariant_of_applications_is_stopped(
    number: int, before: Application, after: Application
) -> None:
    with pytest.raises(AssertionError, match=f"^APP-{number}:"):
        APPLICATION.check(before, after)
