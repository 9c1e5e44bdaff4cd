"""The decider of each command, with the kind of aggregate that it changes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, get_args

from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.commands import CreateScope, DeleteScope
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.controller.domain.kinds import GROUPS, SCOPES, STREAMS, TABLES, Kind
from anabranch.controller.domain.kv_table.decide import TableCommand
from anabranch.controller.domain.reader_group.decide import GroupCommand
from anabranch.controller.domain.stream.decide import StreamCommand
from anabranch.controller.handlers.deciding.desk import CommandDesk
from anabranch.controller.handlers.deciding.groups import decide_group
from anabranch.controller.handlers.deciding.scopes import decide_scope
from anabranch.controller.handlers.deciding.streams import decide_stream
from anabranch.controller.handlers.deciding.tables import decide_table


class Decider(NamedTuple):
    """`decide` loads the aggregate, decides, stores the events, returns the changed aggregate."""

    kind: Kind[Any, Any]
    decide: Callable[[CommandDesk, Any], Awaitable[Loaded[Any]]]


DECIDERS: Mapping[type[CommandBase], Decider] = {
    **dict.fromkeys((CreateScope, DeleteScope), Decider(SCOPES, decide_scope)),
    **dict.fromkeys(get_args(StreamCommand), Decider(STREAMS, decide_stream)),
    **dict.fromkeys(get_args(GroupCommand), Decider(GROUPS, decide_group)),
    **dict.fromkeys(get_args(TableCommand), Decider(TABLES, decide_table)),
}
COMMANDED = tuple({decider.kind.name: decider.kind for decider in DECIDERS.values()}.values())
"""The kinds that commands change."""
