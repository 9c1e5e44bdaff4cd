"""The cause of a stream epoch.

A cause is an open set of words: the state and the answers carry it, and no decision depends on it.
A release therefore stores and shows causes that a later release added. A new cause is one more
constant.
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


def cause_before_causes(stream_epoch: int, reference_epoch: int) -> EpochCause:
    """The cause of an epoch that was stored by a release without causes.

    Only the two epochs of a roll refer to another epoch. Every scale counts as manual.
    """
    if stream_epoch == 0:
        return CREATE
    return MANUAL if stream_epoch == reference_epoch else ROLL
