"""The AsyncAPI document of everything that travels over NATS, made from the contracts.

Nothing in it is written by hand: subjects come from `contracts.subjects`, messages and what
answers them from the contracts of commands, queries and segment requests. Renew the committed
document with ``make asyncapi``.
"""

import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from anabranch.common.contracts import (
    subjects,
)
from anabranch.common.contracts.commands import (
    Accepted,
    Command,
    OperationStatus,
    Rejected,
)
from anabranch.common.contracts.control import QUESTIONS
from anabranch.common.contracts.elections import EpochPromised, PromiseEpoch, PromiseRefused
from anabranch.common.contracts.load import LoadReport
from anabranch.common.contracts.queries import QueryFailed
from anabranch.common.contracts.segment_requests import PAYLOAD_SIZE_BYTES_MAX, SEGMENT_REQUESTS
from anabranch.common.wire.messages import KINDS, Failed, Message
from tidy.source import ROOT

PATH = ROOT / "docs/asyncapi.json"
PACKET_TYPE = "application/vnd.anabranch.packet"
"""Of messages in packets, which `wire.packet` describes."""

Json = dict[str, Any]
_SCHEMAS = "#/components/schemas/{name}"
_DESCRIPTION = (
    "What internal clients may publish and ask; docs/nats.md explains it. Messages of the type "
    f"{PACKET_TYPE} are one packet each: the message in MessagePack, where bytes are binary and "
    "not base64, then the payload if there is one."
)
_PLACES = {
    "bucket": "MurmurHash3 (32 bits, seed 0) of `scope`, `scope/stream` or `scope/group`, "
    "modulo 16.",
    "container": "The number that the query `locate` tells for a segment.",
    "group": "The reader group's name, with `.` written `=`.",
    "node": "The segment store's node id.",
    "operation": "The command's `command_id`.",
    "scope": "The scope's name, with `.` written `=`.",
    "stream": "The stream's name, with `.` written `=`.",
}
_KIND_OF = {message: number for number, message in KINDS.items()}


@dataclass
class _Document:
    """What is collected while the subjects are gone through."""

    channels: Json = field(default_factory=dict)
    operations: Json = field(default_factory=dict)
    models: set[type[BaseModel]] = field(default_factory=set)
    structs: set[type[Message]] = field(default_factory=set)

    def message(self, kind: type[BaseModel] | type[Message]) -> Json:
        """A reference to the message, which is remembered for the components."""
        if issubclass(kind, BaseModel):
            self.models.add(kind)
        else:
            self.structs.add(kind)
        return {"$ref": f"#/components/messages/{kind.__name__}"}

    def channel(
        self, name: str, address: str | None, messages: Iterable[type[BaseModel] | type[Message]]
    ) -> Json:
        """Add a channel. Returns the reference to it."""
        channel: Json = {
            "address": address,
            "messages": {kind.__name__: self.message(kind) for kind in messages},
        }
        places = [part[1:-1] for part in (address or "").split(".") if part.startswith("{")]
        if places:
            channel["parameters"] = {place: {"description": _PLACES[place]} for place in places}
        self.channels[name] = channel
        return {"$ref": f"#/channels/{name}"}

    def request(
        self,
        name: str,
        address: str,
        request: type[BaseModel] | type[Message],
        replies: tuple[type[BaseModel] | type[Message], ...],
        *,
        inbox: str | None = None,
    ) -> None:
        """Add what the cluster receives on `address` and how it replies.

        `inbox`: where the request says it wants the answer; None: NATS itself carries that.
        """
        asked = self.channel(name, address, (request,))
        answered = self.channel(f"{name}.reply", None, replies)
        self.operations[name] = {
            "action": "receive",
            "channel": asked,
            **_summary(request),
            "messages": [{"$ref": f"{asked['$ref']}/messages/{request.__name__}"}],
            "reply": {
                **({"address": {"location": inbox}} if inbox else {}),
                "channel": answered,
                "messages": [
                    {"$ref": f"{answered['$ref']}/messages/{kind.__name__}"} for kind in replies
                ],
            },
        }

    def announcement(self, name: str, address: str, message: type[BaseModel]) -> None:
        """Add what the cluster publishes on `address` to whoever listens."""
        channel = self.channel(name, address, (message,))
        self.operations[name] = {
            "action": "send",
            "channel": channel,
            **_summary(message),
            "messages": [{"$ref": f"{channel['$ref']}/messages/{message.__name__}"}],
        }


def document() -> Json:
    """The whole document."""
    found = _Document()
    _add_commands(found)
    _add_queries(found)
    _add_segment_requests(found)
    _add_load_reports(found)
    _add_promises(found)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Anabranch over NATS",
            "version": "1",
            "description": _DESCRIPTION,
        },
        "defaultContentType": "application/json",
        "channels": found.channels,
        "operations": found.operations,
        "components": {
            "messages": _messages(found.models, found.structs),
            "schemas": _schemas(found.models, found.structs),
        },
    }


def rendered() -> str:
    """The document as it is committed."""
    return json.dumps(document(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _add_commands(found: _Document) -> None:
    union, *_ = get_args(Command)
    for command in get_args(union):
        kind = command.model_fields["kind"].default
        part = next((p for p in ("stream", "group") if p in command.model_fields), None)
        subject = subjects.command(0, kind, "{scope}", part and f"{{{part}}}")
        address = subject.replace(".0.", ".{bucket}.", 1)
        found.request(
            f"command.{kind}",
            address,
            command,
            (Accepted, Rejected),
            inbox="$message.payload#/reply_to",
        )
    found.announcement("notice", subjects.operation_notice("{operation}"), OperationStatus)


def _add_queries(found: _Document) -> None:
    for name, (query, answer) in QUESTIONS.items():
        found.request(f"query.{name}", subjects.query(name), query, (answer, QueryFailed))


def _add_segment_requests(found: _Document) -> None:
    for verb, (request, reply) in SEGMENT_REQUESTS.items():
        address = subjects.segment_request(0, verb).replace(".0.", ".{container}.", 1)
        found.request(f"segment.{verb}", address, request, (reply, Failed))


def _add_load_reports(found: _Document) -> None:
    found.announcement("load", subjects.load_report("{node}"), LoadReport)


def _add_promises(found: _Document) -> None:
    address = subjects.promise_request("{node}")
    found.request("promise", address, PromiseEpoch, (EpochPromised, PromiseRefused))


def _summary(kind: type[BaseModel] | type[Message]) -> Json:
    """The first paragraph of what the message says of itself, if it says something."""
    if kind.__doc__ is None or kind.__doc__ in (base.__doc__ for base in kind.__mro__[1:]):
        return {}
    return {"summary": " ".join(inspect.cleandoc(kind.__doc__).split("\n\n")[0].split())}


def _messages(models: Iterable[type[BaseModel]], structs: Iterable[type[Message]]) -> Json:
    messages: Json = {
        model.__name__: {
            "contentType": "application/json",
            "payload": {"$ref": _SCHEMAS.format(name=model.__name__)},
        }
        for model in models
    }
    for struct in structs:
        messages[struct.__name__] = {
            "contentType": PACKET_TYPE,
            "payload": {"$ref": _SCHEMAS.format(name=struct.__name__)},
            "x-packet-kind": _KIND_OF[struct],
            "x-packet-payload-size-max": PAYLOAD_SIZE_BYTES_MAX,
        }
    return messages


def _schemas(models: Iterable[type[BaseModel]], structs: Iterable[type[Message]]) -> Json:
    ordered = sorted(models, key=lambda model: model.__name__)
    _, of_models = models_json_schema(
        [(model, "validation") for model in ordered],
        ref_template=_SCHEMAS.replace("{name}", "{model}"),
    )
    _, of_structs = msgspec.json.schema_components(
        sorted(structs, key=lambda struct: struct.__name__),
        ref_template=_SCHEMAS,
    )
    schemas: Mapping[str, Any] = of_models["$defs"]
    clash = schemas.keys() & of_structs.keys()
    assert not clash, f"two messages have one name: {clash}"
    return {**schemas, **of_structs}


if __name__ == "__main__":
    PATH.write_text(rendered())
