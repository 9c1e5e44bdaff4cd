"""Subjects are stored with the messages on them: they may never change."""

import pytest

from anabranch.common.contracts import subjects
from anabranch.common.model.names import ScopeName, stream_ref

SCOPE = ScopeName("a.b-c")
STREAM = stream_ref("a.b-c/x.y")


@pytest.mark.parametrize(
    ("subject", "frozen"),
    [
        (subjects.event_stream(3), "ANA_EVENTS_03"),
        (subjects.event_stream_subjects(3), "ana.evt.3.>"),
        (subjects.scope_events(SCOPE), "ana.evt.8.scope.a=b-c"),
        (subjects.stream_events(STREAM), "ana.evt.14.stream.a=b-c.x=y"),
        (subjects.scope_gate(SCOPE, 2), "ana.evt.8.gate.a=b-c.2"),
        (subjects.scope_member(SCOPE, 2, "x.y", 5), "ana.evt.8.member.a=b-c.2.x=y.5"),
        (subjects.command(7, "seal_stream", "a.b-c", "x.y"), "ana.cmd.7.seal_stream.a=b-c.x=y"),
        (subjects.operation_notice("op"), "ana.note.op.op"),
        (subjects.segment_request(1, "create"), "ana.seg.1.create"),
    ],
)
def test_a_subject_is_frozen(subject: str, frozen: str) -> None:
    assert subject == frozen
