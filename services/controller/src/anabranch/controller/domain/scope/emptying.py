"""What is told to whatever is in a scope that is deleted recursively. Pure."""

import hashlib

from anabranch.common.contracts.commands import DeleteStream, SealStream
from anabranch.common.contracts.reader_groups import DeleteReaderGroup
from anabranch.common.model.reader_group import GroupState
from anabranch.common.model.stream import StreamState
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.stream import intents
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.state import Stream


def next_command(workflow: str, stream: Stream) -> SealStream | DeleteStream | None:
    """What the stream needs on its way to be deleted; None: nothing now.

    `workflow` names the deletion. The same need makes the same command, so it may be posted
    again and again and is carried out once.
    """
    assert stream.ref is not None
    command: type[SealStream | DeleteStream]
    match stream.status:
        case StreamState.ACTIVE if not intents.find(stream.intents, IntentKind.SEAL):
            command, step = SealStream, "seal"
        case StreamState.CREATING | StreamState.SEALED:
            command, step = DeleteStream, "delete"
        case _:
            return None
    return command(
        command_id=derived_id(workflow, step, f"{stream.ref}/{stream.incarnation}"),
        scope=stream.ref.scope,
        stream=stream.ref.stream,
        incarnation=stream.incarnation,
    )


def group_command(workflow: str, group: ReaderGroup) -> DeleteReaderGroup | None:
    """The same of a reader group."""
    assert group.ref is not None
    if not group.is_live or group.status is GroupState.DELETING:
        return None
    return DeleteReaderGroup(
        command_id=derived_id(workflow, "delete_group", f"{group.ref}/{group.incarnation}"),
        scope=group.ref.scope,
        group=group.ref.group,
        incarnation=group.incarnation,
    )


def derived_id(workflow: str, step: str, about: str) -> str:
    """The id of the command that a workflow's step posts about something: always the same."""
    # None of the three contains a line break.
    return hashlib.blake2b(f"{workflow}\n{step}\n{about}".encode(), digest_size=20).hexdigest()
