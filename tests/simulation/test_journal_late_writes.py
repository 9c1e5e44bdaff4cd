"""A writer process that gets to its last write after its owner's successor began to open."""

from kit.journal_late import (
    late_writes_at_every_call,
    more_arrives_while_the_child_writes,
    power_loss_before_the_child_writes,
)


def test_a_late_write_at_any_moment_of_a_successors_open_changes_nothing_it_relies_on() -> None:
    assert late_writes_at_every_call() > 40


def test_what_the_child_was_only_asked_for_is_not_acknowledged() -> None:
    power_loss_before_the_child_writes()


def test_what_arrives_during_a_write_is_the_next_write() -> None:
    more_arrives_while_the_child_writes()
