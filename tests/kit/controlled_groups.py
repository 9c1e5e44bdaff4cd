"""Reader groups in memory: a scope with the streams s/x and s/y, and what is done to a group."""

from collections.abc import Sequence

from anabranch.common.contracts.commands import CreateStream, DeleteStream, SealStream
from anabranch.common.contracts.reader_groups import (
    CreateReaderGroup,
    DeleteReaderGroup,
    ResetReaderGroup,
)
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import StreamRef, stream_ref
from anabranch.common.model.reader_group import (
    GroupRetention,
    GroupStream,
    ReaderGroupConfig,
)
from anabranch.common.workflow.runner import run_to_rest
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.reader_group.decide import GroupCommand
from anabranch.controller.domain.reader_group.state import GroupStep, ReaderGroup, next_step
from anabranch.controller.domain.stream.state import Stream
from kit.workflow_world import (
    GROUP_REF,
    GROUP_STEPS,
    GROUP_SUBJECT,
    STATE_SUBJECT,
    World,
)

X, Y = stream_ref("s/x"), stream_ref("s/y")
ROUNDS_MAX = 20


def config(*streams: str, retention: str = "automatic") -> ReaderGroupConfig:
    return ReaderGroupConfig(
        tuple(GroupStream(stream) for stream in streams), retention=GroupRetention(retention)
    )


CREATE = CreateReaderGroup(command_id="create-g", scope="s", group="g", config=config("s/x", "s/y"))
RESET = ResetReaderGroup(command_id="reset-g", scope="s", group="g", config=config("s/y"))
DELETE = DeleteReaderGroup(command_id="delete-g", scope="s", group="g")
FIRST_COMMANDS: dict[GroupStep, Sequence[GroupCommand]] = {
    GroupStep.JOIN_SCOPE: (CREATE,),
    GroupStep.MAKE_STATE_STREAM: (CREATE,),
    GroupStep.SUBSCRIBE: (CREATE,),
    GroupStep.RESUBSCRIBE: (CREATE, RESET),
    GroupStep.UNSUBSCRIBE: (CREATE, DELETE),
    GroupStep.DELETE_STATE_STREAM: (CREATE, DELETE),
}
"""What is asked, one after the other, so that the step is to be done."""


class GroupWorld(World):
    """A scope with the streams s/x and s/y."""

    async def prepare(self) -> None:
        await self.open_scope()
        self.listing.names = {X.stream, Y.stream, GROUP_REF.state_stream.stream}
        for ref in (X, Y):
            await self.command(
                CreateStream(command_id=f"c-{ref.stream}", scope=ref.scope, stream=ref.stream)
            )
            await run_to_rest(self.workflow(), stream_events(ref))

    async def work_others(self) -> None:
        """Run the workflows of all streams that are there."""
        for subject in (stream_events(X), stream_events(Y), STATE_SUBJECT):
            await run_to_rest(self.workflow(), subject)

    async def work(self) -> ReaderGroup:
        """Run all workflows, as runners would, until the group rests."""
        for _ in range(ROUNDS_MAX):
            try:
                return (await run_to_rest(self.group_workflow(), GROUP_SUBJECT)).state
            except StillWaiting:
                await self.work_others()
        raise AssertionError("the group never came to rest")

    async def do(self, command: GroupCommand) -> ReaderGroup:
        await self.group_command(command)
        return await self.work()

    async def come_to(self, step: GroupStep) -> Loaded[ReaderGroup]:
        """The group just before `step`."""
        await self.prepare()
        for command in FIRST_COMMANDS[step][:-1]:
            await self.do(command)
        await self.group_command(FIRST_COMMANDS[step][-1])
        for _ in range(ROUNDS_MAX):
            loaded = await self.groups.load(GROUP_SUBJECT)
            due = next_step(loaded.state)
            assert due is not None
            if due is step:
                return loaded
            try:
                await self.groups.append(loaded, [await GROUP_STEPS[due](self.context, loaded)])
            except StillWaiting:
                await self.work_others()
        raise AssertionError("the step never came")

    async def at(self, subject: str) -> Stream:
        return (await self.streams.load(subject)).state

    async def end(self, ref: StreamRef) -> None:
        """Seal and delete a stream."""
        for kind in (SealStream, DeleteStream):
            command_id = f"{kind.__name__}-{ref.stream}"
            await self.command(kind(command_id=command_id, scope="s", stream=ref.stream))
            await run_to_rest(self.workflow(), stream_events(ref))

    async def outcome(self) -> object:
        group = await self.group()
        known = {
            str(ref): [
                one.generation for one in (await self.at(stream_events(ref))).subscriptions.present
            ]
            for ref in (X, Y)
        }
        return group.status, group.generation, len(self.segments.live()), known
