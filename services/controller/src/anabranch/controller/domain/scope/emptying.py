"""What the streams of a scope that is deleted recursively are told to do. Pure."""

import hashlib

from anabranch.common.contracts.commands import DeleteStream, SealStream
from anabranch.common.model.stream import StreamState
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


def derived_id(workflow: str, step: str, about: str) -> str:
    """The id of the command that a workflow's step posts about something: always the same."""
    # None of the three contains a line break.
    return hashlib.blake2b(f"{workflow}\n{step}\n{about}".encode(), digest_size=20).hexdigest()
