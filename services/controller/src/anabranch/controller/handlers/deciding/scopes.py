"""Commands about scopes."""

from anabranch.common.contracts.commands import CreateScope, DeleteScope
from anabranch.common.contracts.subjects import scope_events
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import scope_name
from anabranch.controller.domain.kinds import SCOPES
from anabranch.controller.domain.scope import decide as scope_decide
from anabranch.controller.domain.scope.state import Scope
from anabranch.controller.handlers.deciding.desk import CommandDesk, change


async def decide_scope(desk: CommandDesk, command: CreateScope | DeleteScope) -> Loaded[Scope]:
    """Decide on the scope alone."""
    subject = scope_events(scope_name(command.scope))
    now_ms = desk.clock.now_ms()
    return await change(
        desk, desk.repositories[SCOPES], subject,
        lambda loaded: scope_decide.decide(loaded.state, command, now_ms=now_ms),
    )  # fmt: skip
