"""The fake controller behind the subjects of a real NATS server, able to lose its replies."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from nats.aio.client import Client
from nats.aio.msg import Msg

from anabranch.common.contracts import subjects
from anabranch.common.contracts.commands import COMMANDS, Accepted
from kit.fake_controller import FakeController


@dataclass
class NatsController:
    """Serves `controller`; the switches lose what they name."""

    controller: FakeController
    connection: Client
    answers_to_lose: int = 0
    notices_lost: bool = False
    deaf: bool = False
    commands_heard: int = 0

    async def on_query(self, message: Msg) -> None:
        name = message.subject.removeprefix(subjects.query(""))
        answer = self.controller.answer(name, message.data)
        await message.respond(answer.model_dump_json().encode())

    async def on_command(self, message: Msg) -> None:
        if self.deaf:
            return
        self.commands_heard += 1
        command = COMMANDS.validate_json(message.data)
        answer = self.controller.decide(command)
        if self.answers_to_lose:
            self.answers_to_lose -= 1
        else:
            await self.connection.publish(command.reply_to, answer.model_dump_json().encode())
        if isinstance(answer, Accepted) and not self.notices_lost:
            status = self.controller.operations[answer.operation]
            await self.connection.publish(
                subjects.operation_notice(answer.operation), status.model_dump_json().encode()
            )


@asynccontextmanager
async def nats_controller(
    controller: FakeController, connection: Client
) -> AsyncIterator[NatsController]:
    """Serve until the block ends; commands are kept by JetStream as in a real cluster."""
    served = NatsController(controller, connection)
    await connection.jetstream().add_stream(
        name=subjects.COMMAND_STREAM, subjects=[subjects.COMMAND_SUBJECTS]
    )
    queries = await connection.subscribe(subjects.query("*"), cb=served.on_query)
    commands = await connection.subscribe(subjects.COMMAND_SUBJECTS, cb=served.on_command)
    await connection.flush()
    try:
        yield served
    finally:
        await queries.unsubscribe()
        await commands.unsubscribe()
