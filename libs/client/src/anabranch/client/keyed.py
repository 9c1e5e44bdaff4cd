"""Data by key: the tables of a client, and the views that keep them up to date with streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast, overload

from typing_extensions import TypeVar

import anabranch.client as public
from anabranch.client.administration import Administration
from anabranch.client.runtime import Runtime
from anabranch.client.settings import TableSettings
from anabranch.client.wire.control import ConnectionPool, ControlPlane
from anabranch.common.errors import Closed, InvalidRequest, Remedy
from anabranch.common.model.names import StreamRef, stream_ref
from anabranch.common.model.reader_group import GroupRef, group_ref
from anabranch.common.model.table import TableRef, table_ref
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng

if TYPE_CHECKING:
    from anabranch.client.tables.keys import KeySerializers

E = TypeVar("E", default=bytes)
K = TypeVar("K")
R = TypeVar("R", default=bytes)
T = TypeVar("T")
V = TypeVar("V")


class KeyedData(Administration):
    """The tables and views of a cluster, as parts of a `Client`.

    ::

        async with client.table("shop/stock") as table:
            print(await table.get("apple"))
    """

    def __init__(self, control: ControlPlane, pool: ConnectionPool, clock: Clock, rng: Rng) -> None:
        super().__init__(control, pool, clock, rng)
        self._runtime: Runtime | None = None
        self._closed = False

    @overload
    def table(
        self, table: str | TableRef, settings: TableSettings | None = None
    ) -> public.Table[Any, Any]: ...

    @overload
    def table(
        self,
        table: str | TableRef,
        settings: TableSettings | None = None,
        *,
        value: public.Serializer[V],
    ) -> public.Table[Any, V]: ...

    @overload
    def table(
        self,
        table: str | TableRef,
        settings: TableSettings | None = None,
        *,
        key: public.Serializer[K],
        value: public.Serializer[V],
    ) -> public.Table[K, V]: ...

    @overload
    def table(
        self,
        table: str | TableRef,
        settings: TableSettings | None = None,
        *,
        key: tuple[public.Serializer[K], public.Serializer[T]],
        value: public.Serializer[V],
    ) -> public.Table[tuple[K, T], V]: ...

    @overload
    def table(
        self,
        table: str | TableRef,
        settings: TableSettings | None = None,
        *,
        key: KeySerializers,
        value: public.Serializer[V] | None = None,
    ) -> public.Table[Any, Any]: ...

    def table(
        self,
        table: str | TableRef,
        settings: TableSettings | None = None,
        *,
        key: KeySerializers = None,
        value: public.Serializer[Any] | None = None,
    ) -> public.Table[Any, Any]:
        """A key-value table by its name ``scope/table``; enter it with `async with`.

        Keys and values are those of their serializers; without one, they are bytes or text, and
        come back as bytes. The keys of a table with secondary keys are pairs (primary, secondary),
        whose parts have a serializer each if `key` is a pair. Raises InvalidName.

        ::

            async with client.table("shop/stock", value=JsonSerializer()) as table:
                await table.put("apple", 5)
                print(await table.get("apple"))
        """
        return public.Table(
            table if isinstance(table, TableRef) else table_ref(table),
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or TableSettings(),
            key=key,
            value=value,
        )

    def view(
        self,
        stream: str | StreamRef,
        *,
        group: str | GroupRef,
        table: str | TableRef,
        key: Callable[[public.Event[E]], K | None],
        fold: Callable[[R | None, public.Event[E]], R | None],
        value: public.Serializer[R] | None = None,
        serializer: public.Serializer[E] | None = None,
        key_serializer: KeySerializers = None,
        create: bool = False,
        settings: public.ViewSettings | None = None,
    ) -> public.View[E, K, R]:
        """A materialised view: the events of a stream, folded into rows of a table, each once.

        `key` returns the key of an event's row, or None to skip the event. `fold` returns the row
        after the event, given the row before it (None if there is none); None removes the row. It
        may be called again for an event whose row was not saved. `serializer` is for the events'
        payloads, `value` for the rows, and `key_serializer` for the keys, as in `table`. The view
        needs a reader group of its own. With `create`, it creates the group and the table unless
        they exist. Raises InvalidName.

        ::

            async with client.view(
                "shop/sales", group="shop/counters", table="shop/counts", create=True,
                key=lambda event: event.key, fold=lambda row, event: (row or 0) + 1,
                value=JsonSerializer(),
            ) as view:
                await view.run()
        """
        from anabranch.client.groups.parts import ClientGroupParts
        from anabranch.client.views.parts import ViewParts
        from anabranch.client.views.rounds import Recipe

        settings = settings or public.ViewSettings()
        runtime = self._entered()
        groups = ClientGroupParts(self._control, self._directory, runtime)
        parts = ViewParts(
            stream=stream if isinstance(stream, StreamRef) else stream_ref(stream),
            group=groups.group(group if isinstance(group, GroupRef) else group_ref(group)),
            table=self.table(table, settings.table, key=key_serializer),
            groups=self.reader_groups,
            tables=self.tables,
            bounds=groups.bounds,
            runtime=runtime,
        )
        return public.View(
            parts, Recipe(key, fold, serializer, _rows(value)), settings, create=create
        )

    def _entered(self) -> Runtime:
        if self._closed:
            raise Closed("the client is closed", remedy="connect again")
        if self._runtime is None:
            raise InvalidRequest(
                "the client is not open",
                remedy=Remedy(api="use it as `async with connect(...) as client`"),
            )
        return self._runtime


def _rows(given: public.Serializer[R] | None) -> public.Serializer[R]:
    return given or cast("public.Serializer[R]", public.BytesSerializer())
