"""The cause of a stream epoch.

A cause is an open set of words: the state and the answers carry it, and no decision depends on it.
A release therefore stores and shows causes that a later release added. A new cause is one more
constant. After the word, a colon and details may follow: `auto-split: segment 0 with 3000 …`.
"""

from typing import NewType

EpochCause = NewType("EpochCause", str)

CREATE = EpochCause("create")
"""The stream was created: epoch 0."""
MANUAL = EpochCause("manual")
"""A `ScaleStream` command requested the scale."""
UPDATE = EpochCause("update")
"""A new scaling policy required another number of segments."""
ROLL = EpochCause("roll")
"""A batch of transactions of an earlier epoch was committed."""

AUTO_SPLIT = EpochCause("auto-split")
"""The scaling policy found segments that were written too fast."""
AUTO_MERGE = EpochCause("auto-merge")
"""The scaling policy found neighbours that were written slowly."""
DETAILED_LENGTH_MAX = 160


def detailed(cause: EpochCause, details: str) -> EpochCause:
    """The cause with its details, as far as they are short enough to be kept for ever."""
    text = f"{cause}: {details}"
    if len(text) > DETAILED_LENGTH_MAX:
        text = text[: DETAILED_LENGTH_MAX - 1] + "…"
    return EpochCause(text)


def cause_before_causes(stream_epoch: int, reference_epoch: int) -> EpochCause:
    """The cause of an epoch that was stored by a release without causes.

    Only the two epochs of a roll refer to another epoch. Every scale counts as manual.
    """
    if stream_epoch == 0:
        return CREATE
    return MANUAL if stream_epoch == reference_epoch else ROLL
