"""What becomes of commands about key-value tables, from the queue to the stored decision."""

import pytest

from anabranch.common.contracts.command import CommandBase, subject_of
from anabranch.common.contracts.commands import (
    ANSWERS,
    Accepted,
    Answer,
    CreateScope,
    Rejected,
)
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.subjects import shard_of_subject, table_events
from anabranch.common.contracts.tables import (
    CreateTable,
    DeleteTable,
    SealTable,
    UpdateTableConfig,
)
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.model.table import TableConfig, TableState, table_ref
from anabranch.controller.domain.kinds import TABLES
from anabranch.controller.handlers.commands import handle_command
from anabranch.controller.handlers.deciding.desk import CommandDesk
from kit.desks import command_desk

SUBJECT = table_events(table_ref("s/t"))
SCOPE = CreateScope(command_id="scope", scope="s", reply_to="inbox")
CREATE = CreateTable(
    command_id="c1", scope="s", table="t", reply_to="inbox", config=TableConfig(partition_count=2)
)


class Desk:
    """A command desk in memory, and what it answered."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.desk: CommandDesk = command_desk(InMemoryEventStore(), reply=self.reply)

    async def reply(self, _inbox: str, body: bytes) -> None:
        self.answers.append(ANSWERS.validate_json(body))

    async def ask(self, command: CommandBase) -> Answer:
        await handle_command(self.desk, Envelope(command.model_dump_json().encode()))
        return self.answers[-1]


async def test_a_table_is_created_in_an_open_scope_and_answered_with_its_point() -> None:
    desk = Desk()
    await desk.ask(SCOPE)

    answer = await desk.ask(CREATE)

    assert isinstance(answer, Accepted)
    assert answer.operation == "c1"
    loaded = await desk.desk.repositories[TABLES].load(SUBJECT)
    assert answer.read_token.shard == shard_of_subject(SUBJECT)
    assert answer.read_token.sequence == loaded.sequence
    assert (loaded.state.status, loaded.state.revision) == (TableState.CREATING, loaded.revision)


async def test_a_table_without_its_scope_is_refused_with_a_point() -> None:
    desk = Desk()

    answer = await desk.ask(CREATE)

    assert isinstance(answer, Rejected)
    assert answer.error.code == "scope-not-found"
    await desk.ask(SCOPE)
    await desk.ask(CREATE)
    again = await desk.ask(CREATE.model_copy(update={"command_id": "c2"}))
    assert isinstance(again, Rejected)
    assert again.error.code == "table-exists"
    assert again.read_token is not None


@pytest.mark.parametrize(
    "command",
    [
        UpdateTableConfig(command_id="u", scope="s", table="t", config=TableConfig()),
        SealTable(command_id="s", scope="s", table="t"),
        DeleteTable(command_id="d", scope="s", table="t"),
    ],
)
async def test_a_command_about_a_table_that_never_was_is_refused(command: CommandBase) -> None:
    desk = Desk()
    await desk.ask(SCOPE)

    answer = await desk.ask(command.model_copy(update={"reply_to": "inbox"}))

    assert isinstance(answer, Rejected)
    assert answer.error.code == "table-not-found"


@pytest.mark.parametrize("name", ["", "a/b", "_t", "a b", "t" * 250])
async def test_a_name_that_no_table_can_have_is_refused(name: str) -> None:
    desk = Desk()
    await desk.ask(SCOPE)

    answer = await desk.ask(CREATE.model_copy(update={"table": name}))

    assert isinstance(answer, Rejected)
    assert answer.error.code.startswith("invalid-")


def test_commands_about_a_table_queue_in_the_lane_of_its_name() -> None:
    lane = f"ana.cmd.{shard_of_subject(SUBJECT)}"

    assert subject_of(CREATE) == f"{lane}.create_table.s.t"
    assert subject_of(SealTable(command_id="s", scope="s", table="t")) == f"{lane}.seal_table.s.t"
