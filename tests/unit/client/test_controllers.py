"""Whom a client asks, and how often it asks twice."""

from importlib import import_module
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.wire.controllers import (
    BUDGET_MAX,
    BUDGET_SHARE,
    HEDGE_READ_S,
    HEDGED_AFTER_S,
    NEVER_HEDGED,
    SILENCE_LONGEST_S,
    HedgeBudget,
    Roster,
    hedge_after_s,
)
from anabranch.common.contracts import control
from anabranch.controller.handlers.registry import ACTIONS, QUERIES, SLOW


def roster(*live: str) -> Roster:
    built = Roster()
    built.listed((name, True) for name in live)
    return built


def test_only_what_repeats_itself_without_harm_is_asked_twice_at_once() -> None:
    hedged_changes = control.ACTIONS.keys() - NEVER_HEDGED
    assert hedged_changes == {
        "note_time", "resume_transaction", "add_transaction_part", "ping_transactions",
    }  # fmt: skip
    assert set(SLOW) <= NEVER_HEDGED | HEDGED_AFTER_S.keys()
    assert set(SLOW) >= control.ACTIONS.keys()


def test_a_controller_answers_exactly_the_queries_and_actions_of_the_contracts() -> None:
    for named, answered in ((control.QUERIES, QUERIES), (control.ACTIONS, ACTIONS)):
        assert {name: question.query for name, question in named.items()} == {
            name: query for name, (query, _) in answered.items()
        }
    assert not control.QUERIES.keys() & control.ACTIONS.keys()
    assert NEVER_HEDGED | HEDGED_AFTER_S.keys() <= control.QUESTIONS.keys()
    assert hedge_after_s("describe_stream") == HEDGE_READ_S
    assert hedge_after_s("begin_transaction") is None


def test_what_changes_something_is_an_action() -> None:
    """All of them; look at this list when there is another one."""
    assert control.ACTIONS.keys() == {
        "move_container", "abandon_tail", "enable_container", "unpin_container", "drain_store",
            "set_container_replicas", "elect_leader",
        "undrain_store", "confirm_losses",
        "redrive_parked", "drop_parked", "note_time", "remove_writer", "begin_transaction",
        "resume_transaction", "add_transaction_part", "ping_transactions", "commit_transaction",
        "commit_events", "abort_transaction", "forget_application",
        "create_topic", "delete_topic", "update_topic", "add_partitions", "rebalance_topics",
        "name_consumer", "forget_consumer", "register_spu", "unregister_spu",
        "create_spu_group", "scale_spu_group", "delete_spu_group",
    }  # fmt: skip


def test_no_question_of_a_contract_is_left_out_of_the_registries() -> None:
    folder = Path(control.__file__).parent
    names = set()
    for path in folder.glob("*.py"):
        module = import_module(f"anabranch.common.contracts.{path.stem}")
        for table in ("QUERIES", "ACTIONS"):
            names |= set(getattr(module, table, {}))
    assert names == control.QUESTIONS.keys()


@given(st.lists(st.booleans(), max_size=500))
def test_hedges_are_a_tenth_of_the_questions_after_the_first_few(wishes: list[bool]) -> None:
    budget, taken = HedgeBudget(), 0
    for count, wishes_one in enumerate(wishes, 1):
        budget.asked()
        taken += wishes_one and budget.take()
        assert taken <= BUDGET_MAX + BUDGET_SHARE * count


def test_while_nobody_is_known_nats_chooses() -> None:
    assert Roster().choose(0.0) == ""


def test_those_that_answer_are_asked_in_turn() -> None:
    known = roster("a", "b", "c")
    assert {known.choose(0.0) for _ in range(3)} == {"a", "b", "c"}
    assert {known.choose(0.0, but="b") for _ in range(4)} == {"a", "c"}


def test_one_that_was_silent_is_passed_over_for_longer_and_longer() -> None:
    known, now_s, pauses = roster("a", "b"), 100.0, []
    for _ in range(8):
        known.was_silent("a", now_s)
        began_s = now_s
        while "a" not in {known.choose(now_s), known.choose(now_s)}:
            now_s += 0.5
        pauses.append(now_s - began_s)
    assert pauses == sorted(pauses)
    assert pauses[0] == 1.0
    assert pauses[-1] == SILENCE_LONGEST_S


def test_an_answer_makes_good_for_silence() -> None:
    known = roster("a")
    known.was_silent("a", 5.0)
    assert known.choose(5.0) == ""
    known.answered("a")
    assert known.choose(5.0) == "a"


def test_what_membership_calls_down_is_not_asked_until_it_is_called_alive() -> None:
    known = roster("a", "b")
    known.listed([("a", False), ("b", True)])
    assert {known.choose(0.0) for _ in range(3)} == {"b"}
    known.listed([("a", True), ("b", True)])
    assert {known.choose(0.0) for _ in range(3)} == {"a", "b"}


def test_what_is_listed_no_more_is_forgotten_and_a_list_forgives_no_silence() -> None:
    known = roster("a", "b")
    known.was_silent("b", 0.0)
    known.listed([("b", True)])
    assert known.choose(0.5) == ""
    assert known.choose(1.5) == "b"


def test_the_list_is_asked_for_now_and_then() -> None:
    known = Roster()
    assert [known.is_due(at_s) for at_s in (0.0, 0.1, 4.9, 5.0, 5.1)] == [
        True, False, False, True, False,
    ]  # fmt: skip
