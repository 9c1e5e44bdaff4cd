"""Driving a journal whose commits go through a real child process, without an event loop."""

import asyncio
import select
from collections.abc import Callable
from typing import cast

from anabranch.segstore.adapters.journal.process_commits import (
    ProcessCommits,
    start_writer_process,
)
from kit.log_driver import Callbacks

ANSWER_MS_MAX = 20_000


class _Timer:
    def __init__(self, timers: "list[_Timer]", callback: Callable[[], object]) -> None:
        self._timers = timers
        self.callback = callback

    def cancel(self) -> None:
        if self in self._timers:
            self._timers.remove(self)


class ManualLoop:
    """As much of an event loop as `ProcessCommits` uses; timers fire by hand."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], object]] = {}
        self.timers: list[_Timer] = []

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        del self.readers[fd]

    def call_later(self, _seconds: float, callback: Callable[[], object]) -> _Timer:
        timer = _Timer(self.timers, callback)
        self.timers.append(timer)
        return timer

    def fire_timers(self) -> None:
        """Let every deadline pass."""
        timers, self.timers = self.timers, []
        for timer in timers:
            timer.callback()

    def wait(self) -> None:
        """Handle what can be read, as soon as something can."""
        poll = select.poll()
        for fd in self.readers:
            poll.register(fd, select.POLLIN)
        found = poll.poll(ANSWER_MS_MAX)
        assert found, "the child did not answer"
        for fd, _ in found:
            self.readers[fd]()


class ChildCallbacks(Callbacks):
    """`Callbacks` that also wait for the answers of the children started here."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = ManualLoop()
        self.children: list[ProcessCommits] = []

    def start(self, lock_fd: int | None = None) -> ProcessCommits:
        """A new child."""
        loop = cast("asyncio.AbstractEventLoop", self.loop)
        self.children.append(start_writer_process(loop, lock_fd=lock_fd))
        return self.children[-1]

    def run(self) -> None:
        """Call until nothing is left and no answer is awaited."""
        super().run()
        while any(child.outstanding for child in self.children):
            self.loop.wait()
            super().run()

    def run_without_answers(self) -> None:
        """Call until nothing is left but answers."""
        super().run()
