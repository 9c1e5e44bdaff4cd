"""The commands to the members of a scope that is deleted recursively. Pure."""

import hashlib

from anabranch.common.contracts.commands import DeleteStream, SealStream
from anabranch.common.contracts.reader_groups import DeleteReaderGroup
from anabranch.common.contracts.tables import DeleteTable
from anabranch.common.model.reader_group import GroupState
from anabranch.common.model.stream import StreamState
from anabranch.common.model.table import TableState
from anabranch.controller.domain import operations
from anabranch.controller.domain.kv_table.state import KvTable
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.stream import intents
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.state import Stream


def next_command(workflow: str, stream: Stream) -> SealStream | DeleteStream | None:
    """The command that the stream needs now on its way to deletion; None if none.

    `workflow` names the deletion. The same need makes the same command, so it may be posted
    repeatedly and is carried out once.
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
        command_id=_command_id(workflow, step, stream),
        scope=stream.ref.scope,
        stream=stream.ref.stream,
        incarnation=stream.incarnation,
    )


def was_deleted_by(workflow: str, stream: Stream) -> bool:
    """Whether a command of that deletion deleted the stream's last incarnation."""
    deleted_by = _command_id(workflow, "delete", stream)
    return not stream.is_live and operations.find(stream.operations, deleted_by) is not None


def _command_id(workflow: str, step: str, stream: Stream) -> str:
    return derived_id(workflow, step, f"{stream.ref}/{stream.incarnation}")


def group_command(workflow: str, group: ReaderGroup) -> DeleteReaderGroup | None:
    """The command that the reader group needs now; None if none."""
    assert group.ref is not None
    if not group.is_live or group.status is GroupState.DELETING:
        return None
    return DeleteReaderGroup(
        command_id=derived_id(workflow, "delete_group", f"{group.ref}/{group.incarnation}"),
        scope=group.ref.scope,
        group=group.ref.group,
        incarnation=group.incarnation,
    )


def table_command(workflow: str, table: KvTable) -> DeleteTable | None:
    """The command that the key-value table needs now; None if none."""
    assert table.ref is not None
    if not table.is_live or table.status is TableState.DELETING:
        return None
    return DeleteTable(
        command_id=derived_id(workflow, "delete_table", f"{table.ref}/{table.incarnation}"),
        scope=table.ref.scope,
        table=table.ref.table,
        incarnation=table.incarnation,
    )


def derived_id(workflow: str, step: str, about: str) -> str:
    """The id of a command that a workflow's step posts about a member: always the same."""
    # None of the three contains a line break.
    return hashlib.blake2b(f"{workflow}\n{step}\n{about}".encode(), digest_size=20).hexdigest()
