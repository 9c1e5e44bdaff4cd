"""Key-value tables in the scenarios of the controller: how they are told of.

The configuration of a command is written ``partitions=2 primary=8 secondary=0 ttl=1000``; a size of
``any`` is not fixed.
"""

from collections.abc import Sequence

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.commands import COMMANDS
from anabranch.controller.domain.kv_table import decide as table_decide
from anabranch.controller.domain.kv_table.decide import Circumstances, TableCommand
from anabranch.controller.domain.kv_table.events import TableEvent
from anabranch.controller.domain.kv_table.invariants import TABLE
from anabranch.controller.domain.kv_table.state import KvTable, next_step
from kit.story_fields import shown, told

NOW_MS = 1000
_CONFIG = {
    "partitions": "partition_count",
    "primary": "primary_key_size",
    "secondary": "secondary_key_size",
    "ttl": "ttl_ms",
}

_CONFIGURING = ("create_table", "update_table_config")


class TableStory:
    """A key-value table and what is done to it; `open=0` says that its scope is gone or closing."""

    def __init__(self) -> None:
        self.state = KvTable()
        self.revision = 0

    def command(self, fields: dict[str, object]) -> Sequence[TableEvent]:
        scope = int(str(fields.pop("open", 1)))
        command = COMMANDS.validate_python({"scope": "s", "table": "t", **_parsed(fields)})
        assert isinstance(command, TableCommand)
        at = Circumstances(self.revision + 1, scope or None, NOW_MS)
        return table_decide.decide(self.state, command, at)

    def store(self, events: Sequence[Contract]) -> None:
        typed = TABLE.events.validate_python([event.model_dump() for event in events])
        after = TABLE.apply(self.state, typed)
        if events:
            TABLE.check(self.state, after)
            self.revision += 1
        self.state = after

    def event(self, fields: dict[str, object]) -> Contract:
        if fields["kind"] == "table_create_failed":
            fields["error"] = {"code": "scope-not-found", "message": "gone"}
        return TABLE.events.validate_python([fields])[0]

    def show(self) -> str:
        state = self.state
        segments = [each for record in state.epochs for each in record.partitions]
        partitions = ",".join(f"{told(p.segment_id)}:{p.keys.start}-{p.keys.end}" for p in segments)
        ttl_ms = None if state.config is None else state.config.ttl_ms
        return (
            f"= {state.status} incarnation={state.incarnation} partitions={partitions} "
            f"highest={state.highest_number} ttl={ttl_ms} stamp={state.revision} "
            f"next={next_step(state)} " + shown(state.operations)
        )


def _parsed(fields: dict[str, object]) -> dict[str, object]:
    given = {_CONFIG[name]: fields[name] for name in fields if name in _CONFIG}
    config = {name: None if value == "any" else value for name, value in given.items()}
    others = {name: value for name, value in fields.items() if name not in _CONFIG}
    return {**others, "config": config} if fields["kind"] in _CONFIGURING else others
