"""Events into the gateway, in batches."""

from collections.abc import Iterable

from anabranch.cli.http.bodies import NDJSON, Batch, Form, form_of
from anabranch.cli.records import Record
from anabranch.client.wire.http_calls import Answer, Call, GatewayCalls
from anabranch.common.runtime.ids import IdSource


class HttpSink:
    """An `EventSink` that posts batches one after the other, so that keys keep their order.

    Every batch has an Idempotency-Key of its own; its repetition after a lost connection stores
    nothing that the gateway remembers to have stored. At most one batch is kept.
    """

    def __init__(
        self, calls: GatewayCalls, ids: IdSource, path: str, key_field: str | None
    ) -> None:
        self._calls = calls
        self._ids = ids
        self._path = path
        self._key_field = key_field
        self._batch = Batch(Form(NDJSON))

    async def write(self, records: Iterable[Record]) -> None:
        """Returns when they are durable: whoever follows the stream sees them at once."""
        for record in records:
            form = form_of(record, self._key_field)
            if not self._batch.takes(form, record.event):
                await self.flush()
                self._batch = Batch(form)
            self._batch.add(record.event)
        await self.flush()

    async def flush(self) -> None:
        batch, self._batch = self._batch, Batch(self._batch.form)
        if not batch.events:
            return
        headers = {**batch.form.headers(), "idempotency-key": self._ids.new_id()}
        call = Call("POST", self._path, batch.form.query(), headers, content=batch.body())
        self.stored(await self._calls.repeated(call))

    def stored(self, answer: Answer) -> None:
        """Take note of what a batch was answered with."""
