"""Callers of the control plane: they ask for whatever may make sense, by few names.

A caller sees the truth when it chooses, so that most of what it asks for could be done; by the time
its command is decided, it may not be so any more. It repeats a command whose answer does not come,
under its id, and sometimes long afterwards.
"""

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import nats.errors

from anabranch.common.contracts import commands, queries
from anabranch.common.contracts.command import subject_of
from anabranch.common.contracts.commands import ANSWERS, Command, NewRange
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.reader_groups import (
    CreateReaderGroup,
    DeleteReaderGroup,
    ResetReaderGroup,
)
from anabranch.common.contracts.subjects import (
    group_events,
    scope_events,
    stream_events,
    table_events,
)
from anabranch.common.contracts.tables import (
    CreateTable,
    DeleteTable,
    SealTable,
    UpdateTableConfig,
)
from anabranch.common.model.names import ScopeName, StreamName, StreamRef, transaction_segment
from anabranch.common.model.reader_group import (
    GroupRef,
    GroupRetention,
    GroupStream,
    ReaderGroupConfig,
)
from anabranch.common.model.stream import (
    ScalingPolicy,
    ScalingType,
    SegmentOffset,
    StreamConfig,
    StreamState,
    fixed,
)
from anabranch.common.model.table import TableConfig, TableRef
from anabranch.controller.domain.kv_table.state import KvTable
from anabranch.controller.domain.stream import intents
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.registry import answer_query
from kit.control_tables import is_of_table
from kit.control_world import World
from kit.own_reads import OwnReads
from kit.rng import Random
from kit.simbus import SimClient
from kit.simlink import Link

REFS = tuple(StreamRef(ScopeName(s), StreamName(n)) for s, n in ("ax", "ay", "bx", "by"))
PUBLISH_S = 2.0
ANSWER_S = 8.0
TRIES_MAX = 3
LOOKS = "looks at a stream"


class Caller:
    """One client, whose command ids begin with its name."""

    def __init__(self, world: World, name: str, refs: Sequence[StreamRef], think_s: float) -> None:
        self._world = world
        self._refs = refs
        self._think_s = think_s
        self._numbers = itertools.count()
        self._rng: Random = world.rng
        self._name = name
        self._sent: list[Command] = []
        self.link = Link(world.rng, world.counts)
        self._client = SimClient(world.server, self.link, world.rng)
        self._own_reads = OwnReads(world, world.rng)

    async def live(self, count: int) -> None:
        """Ask for so many things, one after another."""
        for _ in range(count):
            await self._world.clock.sleep(self._rng.random() * self._think_s)
            self._write()
            draw = self._rng.random()
            if draw < 0.15:
                await self.look(self._rng.choice(self._refs))
            elif draw < 0.22 and self._sent:
                await self.send(self._rng.choice(self._sent))
            elif draw < 0.4 and self._world.sent:
                await self.send(self._same_wish())
            elif draw < 0.6:
                await self._volley()
            else:
                await self._send_and_read(self._choose())

    async def _send_and_read(self, command: Command) -> None:
        """Send it, and mostly read what it has done, once that is done."""
        answer = await self.send(command)
        if isinstance(answer, commands.Accepted) and self._rng.random() < 0.8:
            await self._own_reads.of(command)

    async def _volley(self) -> None:
        """Several things at once, of which two may be the same wish."""
        chosen = [self._choose() for _ in range(2)]
        if self._rng.random() < 0.3:
            ref = self._rng.choice(self._refs)
            chosen = [self._create(ref), commands.DeleteScope(**self._scoped(ref))]
            if self._rng.random() < 0.5:
                await self.send(chosen.pop(0))
                await self.look(ref)
        chosen.append(self._of_ones_own(self._rng.choice(chosen)))
        async with asyncio.TaskGroup() as group:
            for command in chosen:
                group.create_task(self._send_soon(command))

    async def _send_soon(self, command: Command) -> None:
        await self._world.clock.sleep(self._rng.random() * 0.02)
        await self.send(command)

    async def send(self, command: Command) -> commands.Answer | None:
        """Publish until it is answered, a few times; None if it never was."""
        self._sent.append(command)
        self._world.sent[command.command_id] = command
        answers: list[bytes] = []
        inbox = f"inbox.{self._name}.{command.command_id}"
        self._world.server.inboxes[inbox] = answers.append
        subject = subject_of(command)
        body = command.model_copy(update={"reply_to": inbox}).model_dump_json().encode()
        for _ in range(TRIES_MAX):
            try:
                await self._client.jetstream().publish(subject, body, timeout=PUBLISH_S)
            except nats.errors.Error:
                continue
            await self._world.wait_until(lambda: bool(answers), ANSWER_S)
            if answers:
                answer = ANSWERS.validate_json(answers[0])
                self._own_reads.learn(answer)
                return answer
        return None

    # --- what it asks for -----------------------------------------------------------------------

    def _choose(self) -> Command:
        rng = self._rng
        ref = rng.choice(self._refs)
        scope = self._world.truth.get(scope_events(ref.scope))
        stream = self._world.stream(stream_events(ref))
        if scope is None or not scope.state.is_live:
            if rng.random() < 0.8:
                return commands.CreateScope(**self._scoped(ref))
        elif rng.random() < 0.1:
            recursive = rng.random() < 0.4
            return commands.DeleteScope(**self._scoped(ref), recursive=recursive)
        if rng.random() < 0.12:
            return self._about_group(ref)
        if rng.random() < 0.12:
            return self._about_table(ref)
        if not stream.is_live and rng.random() < 0.8:
            return self._create(ref)
        if stream.status is StreamState.CREATING and rng.random() < 0.5:
            return self._delete(ref, stream)
        usual: tuple[Callable[[StreamRef, Stream], Command], ...] = (
            self._scale, self._scale, self._scale, self._truncate, self._truncate, self._update,
            self._seal, self._seal, self._create_again,
        )  # fmt: skip
        if stream.status is StreamState.SEALED:
            usual = (self._delete, self._delete, self._delete, self._seal, self._scale)
        return rng.choice(usual)(ref, stream)

    def _same_wish(self) -> Command:
        """What somebody asked for lately, in a command of one's own."""
        lately = list(self._world.sent.values())[-6:]
        return self._of_ones_own(self._rng.choice(lately))

    def _of_ones_own(self, wished: Command) -> Command:
        return wished.model_copy(
            update={"command_id": self._new_id(), "deadline_ms": 0, "wait_ms": 0}
        )

    def _create(self, ref: StreamRef) -> Command:
        config = fixed(self._rng.randrange(1, 4))
        return commands.CreateStream(**self._named(ref), config=config)

    def _create_again(self, ref: StreamRef, _stream: Stream) -> Command:
        return self._create(ref)

    def _scale(self, ref: StreamRef, stream: Stream) -> Command:
        rng = self._rng
        if not stream.segments:
            return self._create(ref)
        first = rng.randrange(len(stream.segments))
        chosen = stream.segments[first : first + rng.randrange(1, 3)]
        start, end = chosen[0].keys.start, chosen[-1].keys.end
        parts = rng.randrange(1, 4)
        bounds = [start + (end - start) * part / parts for part in range(parts)] + [end]
        ranges = tuple(
            NewRange(key_start=low, key_end=high) for low, high in itertools.pairwise(bounds)
        )
        return commands.ScaleStream(
            **self._meant(ref, stream),
            seal=tuple(segment.segment_id for segment in chosen),
            new_ranges=ranges,
            expected_epoch=rng.choice((None, stream.stream_epoch)),
        )

    def _truncate(self, ref: StreamRef, stream: Stream) -> Command:
        if not stream.epochs:
            return self._create(ref)
        rng = self._rng
        if rng.random() < 0.3 and stream.archived_epochs == 0:
            epoch = rng.randrange(stream.stream_epoch + 1)
            segments = History(stream.epochs).segments_of(epoch)
        else:
            segments = stream.segments
            scale = intents.find(stream.intents, intents.IntentKind.SCALE)
            if scale is not None and scale.scale is not None and rng.random() < 0.5:
                plan = scale.scale
                stay = [one for one in segments if one.segment_id not in plan.sealed]
                segments = (*stay, *plan.created)
        names = stream.names_of(segment.segment_id for segment in segments)
        bad = rng.choice((0.0, 0.0, 0.3, 1.0))
        places = []
        for segment, name in zip(segments, names, strict=True):
            ends = self._world.segments.boundaries(name)
            is_bad = rng.random() < bad
            offset = rng.randrange(ends[-1] + 2) if is_bad else rng.choice(ends)
            places.append(SegmentOffset(segment.segment_id, offset))
        return commands.TruncateStream(**self._meant(ref, stream), cut=tuple(sorted(places)))

    def _update(self, ref: StreamRef, stream: Stream) -> Command:
        rng = self._rng
        config = fixed(rng.randrange(1, 5))
        if rng.random() < 0.5:
            policy = ScalingPolicy(ScalingType.EVENT_RATE, 100, 2, rng.randrange(1, 4))
            config = StreamConfig(policy, tags=(str(rng.randrange(3)),))
        return commands.UpdateStream(**self._meant(ref, stream), config=config)

    def _about_group(self, ref: StreamRef) -> Command:
        """Of the one group of a scope; its streams may be of other scopes."""
        rng, group = self._rng, GroupRef(ref.scope, "g")
        found = self._world.truth.get(group_events(group))
        named = {**self._scoped(ref), "group": group.group}
        draw = rng.random()
        if found is not None and found.state.is_live and draw < 0.5:
            return DeleteReaderGroup(**named)
        streams = rng.sample(self._refs, rng.randrange(1, len(self._refs) + 1))
        config = ReaderGroupConfig(
            tuple(GroupStream(str(stream)) for stream in streams),
            retention=rng.choice(list(GroupRetention)),
        )
        if found is not None and found.state.is_live and draw < 0.9:
            return ResetReaderGroup(**named, config=config)
        return CreateReaderGroup(**named, config=config)

    def _about_table(self, ref: StreamRef) -> Command:
        """Of the table that is called as the stream."""
        rng, named = self._rng, {**self._scoped(ref), "table": ref.stream}
        found = self._world.truth.get(table_events(TableRef(ref.scope, ref.stream)))
        table = KvTable() if found is None else found.state
        config = TableConfig(partition_count=rng.randrange(1, 4), ttl_ms=rng.randrange(3))
        draw = rng.random()
        if not table.is_live or draw < 0.1:
            return CreateTable(**named, config=config)
        meant = {**named, "incarnation": rng.choice((None, None, table.incarnation))}
        if draw < 0.3:
            present = table.config if table.config is not None else config
            return UpdateTableConfig(**meant, config=replace(present, ttl_ms=rng.randrange(3)))
        return (SealTable if draw < 0.6 else DeleteTable)(**meant)

    def _seal(self, ref: StreamRef, stream: Stream) -> Command:
        return commands.SealStream(**self._meant(ref, stream))

    def _delete(self, ref: StreamRef, stream: Stream) -> Command:
        return commands.DeleteStream(**self._meant(ref, stream))

    def _scoped(self, ref: StreamRef) -> dict[str, Any]:
        said: dict[str, Any] = {"command_id": self._new_id(), "scope": ref.scope}
        if self._rng.random() < 0.2:
            said["wait_ms"] = self._rng.randrange(1, 20_000)
        return said

    def _new_id(self) -> str:
        return f"{self._name}-{next(self._numbers)}"

    def _named(self, ref: StreamRef) -> dict[str, Any]:
        return {**self._scoped(ref), "stream": ref.stream}

    def _meant(self, ref: StreamRef, stream: Stream) -> dict[str, Any]:
        meant = stream.incarnation if stream.is_live and self._rng.random() < 0.4 else None
        return {**self._named(ref), "incarnation": meant}

    # --- what it does beside --------------------------------------------------------------------

    def _write(self) -> None:
        known = self._world.segments.known
        names = sorted(
            name for name in known if transaction_segment(name) is None and not is_of_table(name)
        )
        for _ in range(2):
            if names:
                self._world.segments.write(self._rng.choice(names), self._rng.randrange(1, 50))

    async def look(self, ref: StreamRef) -> None:
        """Ask some controller for a stream; a "no" must have been true."""
        ready = [one for one in self._world.controllers if one.is_caught_up]
        if not ready:
            return
        desk = self._rng.choice(ready).query_desk
        subject = stream_events(ref)
        query = queries.DescribeStream(scope=ref.scope, stream=ref.stream)
        before = self._world.truth.get(subject)
        answer = json.loads(
            await answer_query(desk, "describe_stream", Envelope(query.model_dump_json().encode()))
        )
        if not answer["ok"]:
            unchanged = before is not None and self._world.truth.get(subject) is before
            if unchanged and answer["error"]["code"].endswith("not-found") and _exists(before):
                self._world.wrong.append(f"{ref} was said not to exist: {answer}")
        self._world.counts[LOOKS] += 1


def _exists(loaded: object) -> bool:
    state = getattr(loaded, "state", None)
    return isinstance(state, Stream) and state.status in (StreamState.ACTIVE, StreamState.SEALED)
