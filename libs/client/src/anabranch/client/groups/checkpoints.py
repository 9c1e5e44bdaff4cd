"""How checkpoints of a group begin, become complete, and are forgotten. Pure.

    begun ──each reader reports its positions, or goes──► complete ──16 newer ones──► forgotten
      └── cancelled: gone without a result

A checkpoint takes the saved positions of unassigned segments when it begins. For each reader that
it waits for, it takes the positions of the reader's segments when the reader reaches it. If the
reader releases a segment before, the checkpoint takes the position at that moment, because another
reader may advance the segment afterwards.
"""

from collections.abc import Iterable
from dataclasses import replace

from anabranch.client.groups import updates as u
from anabranch.client.groups.state import Checkpoint, GroupSegment, ReaderGroupState

DONE_CHECKPOINTS_KEPT = 16
"""Complete checkpoints that can still be queried, besides the application's newest."""
UNDER_WAY_MAX = 64
"""For all kinds together; the configuration limits the application's own checkpoints."""


def begun(state: ReaderGroupState, update: u.CheckpointBegun) -> ReaderGroupState:
    under_way = [each for each in state.checkpoints if not each.is_complete]
    of_user = sum(each.kind == "user" for each in under_way)
    if any(each.name == update.name for each in under_way):
        return state
    if update.checkpoint == "user" and of_user >= state.config.checkpoints_max:
        return state
    if len(under_way) >= UNDER_WAY_MAX:
        return state
    waiting = {name: reader.nonce for name, reader in state.readers.items()}
    new = Checkpoint(
        name=update.name,
        kind=update.checkpoint,
        number=state.checkpoints_begun + 1,
        waiting=waiting,
        positions={n: s.position for n, s in state.segments.items() if s.owner not in waiting},
    )
    others = tuple(each for each in state.checkpoints if each.name != update.name)
    state = replace(state, checkpoints_begun=new.number, checkpoints=(*others, new))
    return _forgotten(state)


def reached(
    state: ReaderGroupState, name: str, reader_id: str, number: int | None = None
) -> ReaderGroupState:
    """Complete the reader's part of a checkpoint with the saved positions of its segments.

    `number` restricts this to one checkpoint, because names can be used again.
    """
    checkpoint = state.checkpoint(name)
    if checkpoint is None or reader_id not in checkpoint.waiting:
        return state
    if number not in (None, checkpoint.number):
        return state
    owned = {each.name: each.position for each in state.owned_by(reader_id)}
    waiting = {n: nonce for n, nonce in checkpoint.waiting.items() if n != reader_id}
    changed = replace(
        checkpoint,
        waiting=waiting,
        positions={**owned, **checkpoint.positions},
        last=reader_id,
    )
    return _forgotten(_with_checkpoint(state, changed))


def noted(
    state: ReaderGroupState, reader_id: str, segments: Iterable[GroupSegment]
) -> ReaderGroupState:
    """Note the positions of freed segments in the checkpoints that wait for the reader."""
    for checkpoint in state.checkpoints:
        if reader_id in checkpoint.waiting:
            positions = dict(checkpoint.positions)
            for each in segments:
                positions.setdefault(each.name, each.position)
            state = _with_checkpoint(state, replace(checkpoint, positions=positions))
    return state


def _with_checkpoint(state: ReaderGroupState, changed: Checkpoint) -> ReaderGroupState:
    return replace(
        state,
        checkpoints=tuple(
            changed if each.name == changed.name else each for each in state.checkpoints
        ),
    )


def _forgotten(state: ReaderGroupState) -> ReaderGroupState:
    """Drop complete checkpoints that are older than those to be kept."""
    complete = [each for each in state.checkpoints if each.is_complete]
    by_user = [each for each in complete if each.kind == "user"]
    kept = {each.number for each in (*complete[-DONE_CHECKPOINTS_KEPT:], *by_user[-1:])}
    if len(kept) == len(complete):
        return state
    remaining = (each for each in state.checkpoints if not each.is_complete or each.number in kept)
    return replace(state, checkpoints=tuple(remaining))
