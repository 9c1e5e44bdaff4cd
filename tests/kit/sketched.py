"""Sketches of keys, taken by the store's own code from a load that is known."""

from collections.abc import Sequence

from anabranch.common.contracts.load import KeySketch
from anabranch.common.model.key_range import KeyRange
from anabranch.segstore.domain.load.sketch import POSITION_BITS, SLOTS, Sketch
from kit.rng import Random

Keys = Sequence[tuple[float, float]]
"""Positions of routing keys, and the rate of each."""


def sampled(
    keys: KeyRange,
    uniform: float,
    single: Keys,
    chance: Random,
    *,
    count: int = SLOTS,
    size: int = 100,
) -> KeySketch | None:
    """What a store tells of a segment with these keys: all of its width gets `uniform` events/s,
    and single keys their own rates."""
    found = [(at, rate) for at, rate in single if at in keys]
    rates = [uniform, *(rate for _, rate in found)]
    if not sum(rates):
        return None
    sketch = Sketch()
    for drawn in chance.choices(range(len(rates)), rates, k=count):
        position = chance.uniform(keys.start, keys.end) if drawn == 0 else found[drawn - 1][0]
        sketch.note(int(min(position, keys.end - 1e-12) * 2**POSITION_BITS), size)
    return sketch.summary()


def zipf(count: int, rate: float, chance: Random, *, exponent: float = 1.0) -> Keys:
    """`count` keys at random positions, of together `rate`; that of the n-th one is in proportion
    to 1 / n^exponent."""
    weights = [1 / number**exponent for number in range(1, count + 1)]
    scale = rate / sum(weights)
    return tuple((chance.random(), weight * scale) for weight in weights)
