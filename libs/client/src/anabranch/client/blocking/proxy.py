"""A stand-in for an object of the asynchronous client, for callers that block.

A stand-in runs every method of its object in the loop's thread. It waits for coroutines, and turns
asynchronous iterators and context managers into plain ones. A result is a stand-in again if its
class has anything to await, and otherwise the value itself: events, batches, contracts. A stand-in
as an argument is replaced by its object, and callbacks (``on_…``) run in the calling thread.

Every call costs the way to the loop and back, some 50 µs. Therefore prefer batches to calls per
event: `write_batch`, `batches()`. Iterating over a plain reader, or over the entries or changes of
a table, does not have that cost: the calling thread takes items that were read already by itself.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial, update_wrapper
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast, overload

from anabranch.client.blocking.background import Background, Stay
from anabranch.client.blocking.calls import asked_of_thread, is_begun_later
from anabranch.common.errors import Closed, InvalidRequest

T = TypeVar("T")
R = TypeVar("R")

_END = object()
_AWAITED = ("__aenter__", "__anext__", "__aiter__")


@dataclass(slots=True)
class Target(Generic[T]):
    """An object and the state that its stand-ins share: its thread, its open blocks, undelivered
    items."""

    it: T
    background: Background
    stays: list[Stay] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)
    """Items of interrupted steps, which the next steps return."""
    is_broken: bool = False
    """Whether a generator was interrupted, so that it cannot continue."""
    nowait: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        of_reader = getattr(self.it, "next_event_nowait", None)
        self.nowait = of_reader or getattr(self.it, "next_nowait", None)


class Blocking(Generic[T]):
    """The stand-in of an object: the same methods, without `await`. See the module.

    ::

        with client.reader("plant/sensors", until_tail=True) as reader:
            for event in reader:
                print(event.key, event.payload)
    """

    def __init__(self, target: Target[T], timeout_s: float | None = None) -> None:
        self._target = target
        self._timeout_s = timeout_s

    @property
    def asynchronous(self) -> T:
        """The object itself; it belongs to the loop's thread."""
        return self._begun()

    def with_timeout(self, timeout_s: float | None) -> Self:
        """The same object; each single wait raises TimedOut after `timeout_s`. None: no limit.

        The pending call is cancelled; an iterator continues with the next item afterwards.

        ::

            event = next(reader.with_timeout(1.0))
        """
        return type(self)(self._target, timeout_s)

    @overload
    def run(self, work: Callable[[T], Awaitable[R]]) -> R: ...

    @overload
    def run(self, **parameters: Any) -> Any: ...

    def run(self, work: Callable[[T], Awaitable[R]] | None = None, **parameters: Any) -> Any:
        """Run `work` in the loop with the object, and return its result, or raise its error.

        All calls that `work` makes cost one way to the loop. Without `work`, call the object's own
        `run`: views have one.

        ::

            async def write(writer):
                await writer.append(b"21.5")
                await writer.append(b"21.7")

            writer.run(write)
        """
        it = self._begun()
        if work is None:
            return self._method(cast(Any, it).run)(**parameters)
        return self._perform(partial(work, it))

    def __repr__(self) -> str:
        return f"<blocking {self._target.it}>"

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target.it) if not name.startswith("_")]

    def _begun(self) -> T:
        """The object. What is neither entered nor awaited is awaited: a transaction that is used
        without a block is begun by its first use."""
        target = self._target
        if is_begun_later(target.it):
            call = target.background.thread.new_call(partial(_awaited, target.it))
            target.it = cast(T, target.background.thread.wait(call, self._timeout_s))
        return target.it

    def _perform(self, work: Callable[[], object]) -> Any:
        target = self._target
        return self._wrapped(target.background.thread.perform(work, self._timeout_s))

    def _wrapped(self, value: object) -> Any:
        if value is self._target.it:
            return self
        return wrapped(value, self._target.background, self._timeout_s)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        it = self._begun()
        if isinstance(inspect.getattr_static(type(it), name, None), property | cached_property):
            return self._perform(partial(getattr, it, name))
        found = getattr(it, name)
        return self._method(found) if inspect.isroutine(found) else self._wrapped(found)

    def _method(self, method: Callable[..., object]) -> Callable[..., Any]:
        def call(*args: object, **kwargs: object) -> Any:
            given = [_unwrapped(value) for value in args]
            named = {name: _argument(name, value) for name, value in kwargs.items()}
            return self._perform(partial(method, *given, **named))

        return update_wrapper(call, method)

    # --- iterating ------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        it = self._target.it
        if not hasattr(type(it), "__aiter__"):
            raise TypeError(f"{type(it).__name__} cannot be iterated")
        return cast(Iterator[Any], self._perform(cast(Any, it).__aiter__))

    def __next__(self) -> Any:
        """The next item. If an interrupted wait still received an item, that item is next."""
        target = self._target
        if not target.kept and target.nowait is not None:
            event = target.nowait()
            if event is not None:
                return event
        item = target.kept.pop() if target.kept else self._step()
        if item is _END:
            raise StopIteration
        return item

    def _step(self) -> object:
        target, thread = self._target, self._target.background.thread
        if target.is_broken:
            raise Closed("the iteration was interrupted", remedy="begin a new one")
        call = thread.new_call(partial(_next_of, target.it))
        try:
            return self._wrapped(thread.wait(call, self._timeout_s))
        except BaseException:
            outcome = call.outcome
            if outcome is not None and outcome.error is None:
                target.kept.append(self._wrapped(outcome.value))
            elif outcome is None or not isinstance(outcome.error, Exception):
                target.is_broken = outcome is None or isinstance(target.it, AsyncGenerator)
            raise

    # --- entering -------------------------------------------------------------------------

    def __enter__(self) -> Any:
        target, thread = self._target, self._target.background.thread
        if not hasattr(type(target.it), "__aenter__"):
            raise TypeError(f"{type(target.it).__name__} cannot be entered")
        stay = Stay(cast(Any, target.it), thread.tasks)
        value = self._perform(stay.enter)
        target.stays.append(stay)
        if is_begun_later(target.it) and isinstance(value, Blocking):
            target.it = value.asynchronous
            return self
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not self._target.stays:
            raise InvalidRequest("exit without enter")
        stay = self._target.stays.pop()
        return bool(self._perform(partial(stay.leave, (kind, error, trace))))


def wrapped(value: object, background: Background, timeout_s: float | None) -> object:
    """A stand-in if the value's class has anything to await; otherwise the value."""
    kind = type(value)
    if kind not in background.kinds:
        background.kinds[kind] = _is_asynchronous(kind)
    if not background.kinds[kind]:
        return value
    return Blocking(Target(value, background), timeout_s)


async def _awaited(it: Any) -> object:
    return await it


async def _next_of(iterator: Any) -> object:
    return await anext(iterator, _END)


def _unwrapped(value: object) -> object:
    return value.asynchronous if isinstance(value, Blocking) else value


def _argument(name: str, value: object) -> object:
    is_callback = name.startswith("on_") and callable(value)
    if is_callback and not inspect.iscoroutinefunction(value):
        return asked_of_thread(cast(Callable[..., object], value))
    return _unwrapped(value)


def _is_asynchronous(kind: type) -> bool:
    if any(hasattr(kind, name) for name in _AWAITED):
        return True
    members = [member for parent in kind.__mro__ for member in vars(parent).values()]
    return any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in members
    )
