"""Points of the shards, with which callers demand to read their own writes.

The module has no state: the mirror knows the folded sequences, its shared heads the stored ones.
"""

from collections.abc import Sequence

from anabranch.common.contracts.base import ReadToken
from anabranch.common.errors import ReadTokenUnknown
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.projections.mirror import Mirror


async def reach_demanded(mirror: Mirror, point: ReadToken) -> None:
    """Wait until the mirror has folded the point.

    Raises Unavailable after a deadline, and ReadTokenUnknown, at once, if the shard ends before it.
    """
    if not 0 <= point.shard < SHARD_COUNT or mirror.reached()[point.shard] >= point.sequence:
        return
    if point.sequence > await mirror.heads.last_sequence(point.shard):
        raise ReadTokenUnknown(
            "the cluster has never stored the position of this read token",
            shard=point.shard,
            sequence=point.sequence,
        )
    await mirror.at_least(point)


async def points_of_heads(mirror: Mirror) -> tuple[ReadToken, ...]:
    """The heads of all non-empty shards, which the mirror need not have folded.

    Raises Unavailable.
    """
    heads = [0] * SHARD_COUNT

    async def read(shard: int) -> None:
        heads[shard] = await mirror.heads.last_sequence(shard)

    await for_each(range(SHARD_COUNT), SHARD_COUNT, read)
    return points_at(heads)


def points_at(sequences: Sequence[int]) -> tuple[ReadToken, ...]:
    """The points with these sequences, by shard, without empty shards."""
    return tuple(
        ReadToken(shard=shard, sequence=sequence)
        for shard, sequence in enumerate(sequences)
        if sequence
    )
