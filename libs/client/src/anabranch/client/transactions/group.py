"""Makes one group of the events of a short transaction: one block for each segment. Pure.

Events with a key go to the segment of their key. All events without one go to one segment, which
is the segment of the first event with a key if there is one: they never make a transaction long.
"""

from dataclasses import dataclass

from anabranch.client.transactions.kept import Kept
from anabranch.client.transactions.layout import Layout
from anabranch.client.transactions.pens import Pen
from anabranch.client.writing.batches import Batch, Numbering
from anabranch.common.wire.messages import BlockPlace
from anabranch.common.wire.requests import GROUP_SEGMENTS_MAX, GROUP_SIZE_BYTES_MAX

KEPT_SIZE_BYTES_MAX = 4 * GROUP_SIZE_BYTES_MAX
"""The cost of events beyond which they are not even encoded. Encoded blocks may be smaller than the
cost of their events, because they are compressed or because events are tiny."""


@dataclass(frozen=True, slots=True)
class Group:
    """What an `AppendTogether` carries; `layout`: the one by which it was routed."""

    layout: Layout
    writer_id: bytes
    places: tuple[BlockPlace, ...]
    payload: bytes

    @property
    def segment(self) -> str:
        """The segment whose store receives the group."""
        return self.places[0].segment


def shares_of(kept: Kept, layout: Layout, chance: float) -> dict[str, Batch]:
    """Segment → its events, in write order. `chance`, in [0, 1), chooses a segment if no event has
    a key."""
    keys = [key for key in dict.fromkeys(kept.keys) if key is not None]
    routed = {key: layout.router.route(key) for key in keys}
    names, stamps = layout.names, kept.timestamps_ms
    keyless = routed[keys[0]][0] if keys else int(chance * len(names))
    no_key = (keyless, None)
    has_times = any(stamp is not None for stamp in stamps)
    shares: dict[str, Batch] = {}
    for payload, key, stamp in zip(kept.payloads, kept.keys, stamps, strict=True):
        index, stored = no_key if key is None else routed[key]
        name = names[index]
        if (batch := shares.get(name)) is None:
            batch = shares[name] = Batch()
        batch.events.append(payload)
        batch.keys.append(stored)
        if has_times:
            batch.timestamps_ms.append(stamp)
    return shares


def group_of(
    kept: Kept,
    layout: Layout,
    pen: Pen,
    *,
    chance: float,
    now_ms: int,
    zstd_level: int | None = None,
) -> Group | None:
    """The group, numbered behind the pen's last one; None if the transaction has to be long.

    Raises CodecMissing.
    """
    if kept.has_columns or kept.cost > KEPT_SIZE_BYTES_MAX:
        return None
    shares = shares_of(kept, layout, chance)
    if len(shares) > (GROUP_SEGMENTS_MAX if layout.are_together else 1):
        return None
    places: list[BlockPlace] = []
    blocks: list[bytes] = []
    for segment, batch in shares.items():
        first = pen.next_number(segment)
        block = batch.encode(Numbering(pen.writer_id, first, now_ms, zstd_level))
        places.append(BlockPlace(segment, first, batch.count, len(block)))
        blocks.append(block)
    payload = b"".join(blocks)
    if len(payload) > GROUP_SIZE_BYTES_MAX:
        return None
    return Group(layout, pen.writer_id, tuple(places), payload)
