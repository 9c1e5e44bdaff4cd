"""The client's port, answered by a fake controller in the same process."""

import json
from collections.abc import Callable

from pydantic import TypeAdapter

from anabranch.client.wire.control import A
from anabranch.common.contracts import queries as q
from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.commands import COMMANDS, OperationState, Rejected
from anabranch.common.errors import OutcomeUnknown
from kit.fake_controller import FakeController


class FakeControlPlane:
    """The client's port, answered by a `FakeController` in the same process."""

    def __init__(self, controller: FakeController) -> None:
        self._controller = controller
        self._commands = 0
        self.before_query: Callable[[str], None] = lambda _: None
        """Called with the query's name; may raise what the client is to see."""

    def new_command_id(self) -> str:
        self._commands += 1
        return f"command-{self._commands}"

    async def query(self, name: str, query: q.Query, answer: type[A], *, timeout_s: float) -> A:
        self.before_query(name)
        data = self._controller.answer(name, query.model_dump_json().encode()).model_dump_json()
        if not json.loads(data)["ok"]:
            raise q.QueryFailed.model_validate_json(data).error.to_error()
        return TypeAdapter(answer).validate_json(data)

    async def execute(
        self, command: CommandBase, *, timeout_s: float, wait_s: float | None = None
    ) -> OperationState:
        """The fake works at once; an operation that is held up is left to go on."""
        decided = self._controller.decide(COMMANDS.validate_python(command.model_dump()))
        if isinstance(decided, Rejected):
            raise decided.error.to_error()
        status = self._controller.operations[command.command_id]
        if status.error is not None:
            raise status.error.to_error()
        if status.state is OperationState.RUNNING and wait_s is None:
            raise OutcomeUnknown("the operation did not end in time", operation=command.command_id)
        return status.state

    async def close(self) -> None:
        return None
