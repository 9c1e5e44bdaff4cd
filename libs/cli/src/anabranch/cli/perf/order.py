"""Checks that a stream holds each numbered event of a load once, and those of each key in order.

Event *i* has key *i* modulo the number of keys, so the numbers of a key rise by the number of keys.
Pure.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Order:
    """The events read so far.

    `misplaced` counts the events that do not follow the one before them in their key: something was
    lost, repeated or swapped there.
    """

    key_count: int
    events: int = 0
    misplaced: int = 0
    expected: dict[int, int] = field(default_factory=dict)
    """Key number → the number of its next event."""

    def take(self, key: str | None, index: int) -> None:
        """The next event of the stream."""
        own = index % self.key_count
        if key != key_name(own) or index != self.expected.get(own, own):
            self.misplaced += 1
        self.events += 1
        self.expected[own] = index + self.key_count

    def is_right(self, written: int) -> bool:
        """Whether the events read are exactly the first `written` ones."""
        return self.misplaced == 0 and self.events == written

    def verdict(self, written: int) -> str:
        """The result in a sentence."""
        if self.is_right(written):
            return f"checked: {written:,} events, none lost or repeated, each key in order"
        return (
            f"THE CHECK FAILED: {written:,} events were acknowledged and {self.events:,} were "
            f"read, {self.misplaced:,} of them not where their key continues"
        )


def key_name(number: int) -> str:
    """The routing key with this number."""
    return f"key-{number}"
