"""The stream of a topic through its life, as decisions and the events of its workflows."""

from anabranch.common.contracts.commands import (
    CreateStream,
    DeleteStream,
    NewRange,
    ScaleStream,
    SealStream,
)
from anabranch.common.model.hashing import container_of
from anabranch.common.model.topics import (
    TopicName,
    backing_stream,
    partition_keys,
    rest_keys,
)
from anabranch.controller.domain.stream import events
from anabranch.controller.domain.stream.decide import Circumstances, StreamCommand, decide
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream

REF = backing_stream(TopicName("orders"), "0123456789ab")


class Life:
    """A topic's stream, and the names of all segments that it ever had."""

    def __init__(self) -> None:
        self.stream = Stream()
        self.revision = 0
        self.names: list[str] = []

    def store(self, *stored: events.StreamEvent) -> None:
        after = STREAM.apply(self.stream, stored)
        STREAM.check(self.stream, after)
        self.stream, self.revision = after, self.revision + 1

    def command(self, command: StreamCommand) -> None:
        around = Circumstances(
            revision=self.revision + 1,
            open_scope_incarnation=1,
            now_ms=self.revision,
            history=lambda: History(self.stream.epochs),
        )
        self.store(*decide(self.stream, command, around))

    def create(self, *containers: int) -> None:
        self.command(
            CreateStream(
                command_id=f"c{self.revision}",
                scope=REF.scope,
                stream=REF.stream,
                containers=containers,
            )
        )
        self.store(events.StreamJoinedScope())
        self.store(events.StreamCreated())
        self.names += self.stream.segment_names()

    def grow(self, *containers: int) -> None:
        """`containers`: of the new partitions, and then of the rest."""
        before = set(self.stream.segment_names())
        self.command(growth(self.stream, containers, f"g{self.revision}"))
        self.store(events.StreamSuccessorsMade())
        self.store(events.StreamScaled(sizes=(0,)))
        self.names += [name for name in self.stream.segment_names() if name not in before]

    def truncated(self) -> None:
        """What the workflow of a truncation stores."""
        self.store(events.StreamCutChecked())
        self.store(events.StreamTruncated())

    def delete(self) -> None:
        self.command(seal_command(f"s{self.revision}"))
        self.store(events.StreamDrained(revision=self.revision + 1))
        self.store(events.StreamSealed(lengths=(0,) * len(self.stream.segments)))
        self.command(delete_command(f"d{self.revision}"))
        self.store(events.StreamDeleted())

    @property
    def containers(self) -> list[int]:
        return [container_of(name, 4) for name in self.stream.segment_names()]


def seal_command(command_id: str) -> SealStream:
    return SealStream(command_id=command_id, scope=REF.scope, stream=REF.stream)


def delete_command(command_id: str) -> DeleteStream:
    return DeleteStream(command_id=command_id, scope=REF.scope, stream=REF.stream)


def growth(stream: Stream, containers: tuple[int, ...], command_id: str) -> ScaleStream:
    present = len(stream.segments) - 1
    count = present + len(containers) - 1
    keys = [*map(partition_keys, range(present, count)), rest_keys(count)]
    return ScaleStream(
        command_id=command_id,
        scope=REF.scope,
        stream=REF.stream,
        seal=(stream.segments[-1].segment_id,),
        new_ranges=tuple(NewRange(key_start=k.start, key_end=k.end) for k in keys),
        containers=containers,
    )
