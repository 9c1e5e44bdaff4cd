"""Performs the decisions of `plan`: one loop that observes the parts, probes them, and acts.

The loop is the only writer of the parts' states. Each turn notices ended processes, takes the
parts' answers to their probes, and performs the actions that follow. A probe is a task of its own:
a part that is slow to answer, such as a store that reads its journal, holds up no turn. The loop
ends when every part is down, and leaves no process behind however it ends.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import assert_never

from anabranch.cli.up import plan
from anabranch.cli.up.child import Child, bound_log, error_told_in, last_line, note_pid, spawn
from anabranch.cli.up.parts import PartSpec
from anabranch.cli.up.probe import ask, has_room
from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.runtime.clock import Clock

TURN_SECONDS = 0.05
CALM_PROBE_SECONDS = 1.0
LOG_CHECK_SECONDS = 1.0

States = Mapping[str, plan.PartState]


class Supervisor:
    """Keeps parts running from `run` until `request_stop`; `on_change` takes every change."""

    def __init__(
        self, specs: Sequence[PartSpec], clock: Clock, on_change: Callable[[States], None]
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._needs = {spec.name: spec.needs for spec in specs}
        self._retired: set[str] = set()
        self._clock = clock
        self._on_change = on_change
        self._states = {spec.name: plan.PartState() for spec in specs}
        self._children: dict[str, Child] = {}
        self._probe_due = dict.fromkeys(self._specs, 0.0)
        self._asked: set[str] = set()
        self._answers: list[tuple[str, float, plan.Answer]] = []
        """Part, the start of the process that was asked, its answer."""
        self._log_check_due = 0.0
        self._stopping = False
        self._failure: AnabranchError | None = None
        self._turn = asyncio.Event()

    @property
    def states(self) -> States:
        return MappingProxyType(self._states)

    def pids(self, part: str) -> list[int]:
        """The process id of a running part, or none."""
        child = self._children.get(part)
        return [child.pid] if child is not None and child.end is None else []

    def add(self, spec: PartSpec, before: str = "") -> None:
        """Take in another part, which stops after the part `before`; "": which stops first."""
        assert spec.name not in self._specs, "the part is supervised already"
        names = list(self._specs)
        at = names.index(before) if before in self._specs else len(names)
        specs = {**self._specs, spec.name: spec}
        self._specs = {name: specs[name] for name in (*names[:at], spec.name, *names[at:])}
        self._needs = {name: found.needs for name, found in self._specs.items()}
        states = {**self._states, spec.name: plan.PartState()}
        self._states = {name: states[name] for name in self._specs}
        self._probe_due[spec.name] = 0.0
        self._turn.set()

    def retire(self, part: str) -> None:
        """Stop the part, and then forget it. Idempotent."""
        if part in self._specs:
            self._retired.add(part)
            self._turn.set()

    def request_stop(self) -> None:
        """Stop the parts in order. Idempotent."""
        self._stopping = True
        self._turn.set()

    async def run(self) -> None:
        """Supervise until every part is down. Raises the reason for giving up."""
        try:
            async with asyncio.TaskGroup() as probes:
                await self._take_turns(probes)
        finally:
            await self._leave_nothing()
        if self._failure is not None:
            raise self._failure

    async def _take_turns(self, probes: asyncio.TaskGroup) -> None:
        """Take turns until every part is down, or a part cannot be started."""
        try:
            while not plan.is_cluster_down(self._states):
                await self._take_turn()
                self._ask_due(probes)
                await self._rest()
        except AnabranchError as error:
            self._failure = error

    async def _take_turn(self) -> None:
        before = dict(self._states)
        self._notice_ends()
        self._take_answers()
        self._check_logs()
        actions = plan.next_actions(
            self._needs,
            self._states,
            stopping=self._stopping,
            now=self._clock.monotonic(),
            irreplaceable=self._named(lambda spec: spec.irreplaceable),
            expendable=self._named(lambda spec: spec.expendable),
            retired=self._retired,
        )
        for action in actions:
            await self._perform(action)
        self._forget_retired()
        if self._states != before:
            self._on_change(self.states)

    def _named(self, chosen: Callable[[PartSpec], bool]) -> frozenset[str]:
        return frozenset(name for name, spec in self._specs.items() if chosen(spec))

    def _forget_retired(self) -> None:
        for part in list(self._retired):
            if self._states[part].phase is plan.Phase.DOWN:
                self._retired.remove(part)
                for known in (self._specs, self._needs, self._states, self._probe_due):
                    del known[part]

    async def _rest(self) -> None:
        """Wait until the next turn; a request to stop and an answer end the wait, once."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turn.wait()
        except TimeoutError:
            return
        self._turn.clear()

    def _notice_ends(self) -> None:
        for part, child in list(self._children.items()):
            how = child.end
            if how is not None:
                del self._children[part]
                note_pid(self._specs[part], None)
                excuse = self._excuse_of(part, child)
                now = self._clock.monotonic()
                self._states[part] = plan.ended(self._states[part], now, how, excuse)

    def _excuse_of(self, part: str, child: Child) -> str:
        """The reason why the part is not to blame for its end; empty if none is known."""
        folder = self._specs[part].folder
        if child.disk_failed or (folder is not None and not has_room(folder)):
            return "its disk failed or is full"
        if self._states[part].stuck:
            return "only a restart clears its error"
        return (
            "a part that it needs is not ready"
            if plan.is_held_up(self._needs[part], self._states)
            else ""
        )

    def _ask_due(self, probes: asyncio.TaskGroup) -> None:
        now = self._clock.monotonic()
        for part, state in list(self._states.items()):
            is_due = now >= self._probe_due[part] and part not in self._asked
            if is_due and state.phase is plan.Phase.RUNNING:
                self._asked.add(part)
                self._probe_due[part] = now + TURN_SECONDS
                probes.create_task(self._ask(part, state.since))

    async def _ask(self, part: str, process_since: float) -> None:
        answer = await ask(self._specs[part].probe)
        self._asked.remove(part)
        if part in self._specs:
            self._answers.append((part, process_since, answer))
        self._turn.set()

    def _take_answers(self) -> None:
        now = self._clock.monotonic()
        answers, self._answers = self._answers, []
        for part, since, answer in answers:
            if part not in self._states:
                continue  # it was forgotten meanwhile
            state = plan.probed(self._states[part], answer, now, process_since=since)
            self._states[part] = state
            if plan.is_calm(state, now):
                self._probe_due[part] = now + CALM_PROBE_SECONDS

    def _check_logs(self) -> None:
        now = self._clock.monotonic()
        if now >= self._log_check_due:
            self._log_check_due = now + LOG_CHECK_SECONDS
            for spec in self._specs.values():
                bound_log(spec.log_file)

    async def _perform(self, action: plan.Action) -> None:
        now = self._clock.monotonic()
        state = self._states[action.part]
        match action:
            case plan.Start(part):
                self._children[part] = await spawn(self._specs[part])
                note_pid(self._specs[part], self._children[part].pid)
                self._probe_due[part] = 0.0
                self._states[part] = plan.started(state, now)
            case plan.Stop(part):
                self._children[part].ask_to_stop()
                self._states[part] = plan.asked_to_stop(state, now)
            case plan.Kill(part, reason):
                self._children[part].kill()
                self._states[part] = plan.being_killed(state, reason)
            case plan.Forget(part):
                self._states[part] = plan.forgotten(state, now)
            case plan.GiveUp(part):
                self._failure = self._why_given_up(part)
                self._stopping = True
            case _:
                assert_never(action)

    def _why_given_up(self, part: str) -> AnabranchError:
        """The part's last line if it names an error, else an error from the outside view."""
        spec, state = self._specs[part], self._states[part]
        last = last_line(spec.log_file)
        told = error_told_in(last)
        if told is not None:
            told.fields = {**told.fields, "part": part, "log": str(spec.log_file)}
            return told
        if spec.irreplaceable:
            return Unavailable(
                "the part that kept all data in memory ended, and the data is lost",
                remedy="start the cluster again; without --ephemeral it would have survived this",
                part=part,
                reason=state.reason,
                last_log_line=last,
            )
        return Unavailable(
            "a part of the cluster does not stay up",
            remedy=f"read {spec.log_file}, correct the cause and start again",
            part=part,
            tries=state.failures,
            reason=state.reason,
            last_log_line=last,
        )

    async def _leave_nothing(self) -> None:
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            await child.wait()
