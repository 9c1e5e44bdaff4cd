"""Who reads next."""

from anabranch.segstore.shell.memory.turns import Turns


class Desk:
    """A desk with `reads` to begin; `order` is shared by all."""

    def __init__(self, name: str, reads: int, order: list[str]) -> None:
        self.name, self.reads, self._order = name, reads, order

    @property
    def wants_turn(self) -> bool:
        return self.reads > 0

    def take_turn(self) -> bool:
        if not self.reads:
            return False
        self.reads -= 1
        self._order.append(self.name)
        return True


def test_desks_take_turns_in_the_order_of_their_asking() -> None:
    order: list[str] = []
    turns = Turns(under_way_max=1)
    for name in "abc":
        turns.ask(Desk(name, 3, order))
    for _ in range(8):
        turns.done()
    # The first desk was alone when it asked, and stood in line again at once.
    assert "".join(order) == "aabcabcbc"


def test_a_desk_that_left_or_cannot_begin_costs_no_turn() -> None:
    order: list[str] = []
    turns = Turns(under_way_max=1)
    desks = [Desk(name, 1, order) for name in "abcd"]
    for desk in desks:
        turns.ask(desk)
    turns.leave(desks[1])
    desks[2].reads = 0
    turns.done()
    assert "".join(order) == "ad"
    turns.done()
    assert turns.under_way == 0
