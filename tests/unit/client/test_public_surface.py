"""What a program may import from `anabranch.client`, and that it needs nothing else."""

import re

import anabranch.client
from anabranch.client import Client, EventReader, EventWriter
from anabranch.common.errors import ERRORS_BY_CODE

PUBLIC = frozenset(
    {
        "AnabranchError", "BufferFull", "Busy", "Client", "ClusterOverview", "Conflict",
        "Connecting", "ConnectionLost", "ContainerDescription", "ControllerDescription",
        "Corrupt", "CorruptBlock", "Event", "EventBatch", "EventReader", "EventTooLarge",
        "EventWriter", "Fenced", "FormatTooNew", "Invalid", "InvalidName", "InvalidRequest",
        "InvalidSetting", "LossesConfirmed", "NodeDescription", "NodeNotFound", "NotFound",
        "OperationNotFound", "OutcomeUnknown", "Overloaded", "ParkedDescription", "Position",
        "ReaderSettings", "Retry", "ScopeDescription",
        "ScopeExists", "ScopeNotEmpty", "ScopeNotFound", "SegmentNotFound", "SegmentRate",
        "SegmentWithRate", "StreamDescription", "StreamExists", "StreamNotFound",
        "StreamNotSealed", "StreamRef", "StreamSealed", "StreamState", "Unavailable", "Unknown",
        "UnsupportedProtocol", "WriterExpired", "WriterSettings", "connect",
    }
)  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert sorted(anabranch.client.__all__) == sorted(PUBLIC)
    assert all(hasattr(anabranch.client, name) for name in PUBLIC)


def test_every_error_that_a_public_method_names_can_be_imported_beside_it() -> None:
    errors = {kind.__name__ for kind in ERRORS_BY_CODE.values()}
    named = {
        word
        for owner in (Client, EventWriter, EventReader, anabranch.client.connect)
        for member in (owner, *vars(owner).values())
        for word in re.findall(r"[A-Z]\w+", getattr(member, "__doc__", None) or "")
    }
    assert "BufferFull" in named
    assert named & errors <= PUBLIC
