"""The NATS server's answers to a client: its release, its clock, the account, and the streams."""

import json
from collections.abc import Mapping

from nats.aio.client import Client
from nats.errors import NoRespondersError

from anabranch.cli.doctor.decisions.nats import Account, KeptStream, NatsServer
from anabranch.cli.doctor.sources.clock import instant_ms
from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.errors import InvalidSetting, Unavailable
from anabranch.common.eventsourcing.store_clock import Bound, bound_of
from anabranch.common.runtime.clock import Clock

ANSWER_S_MAX = 3.0
CLOCK_LOOKS = 5
STREAM_COUNT_MAX = 1_000
_INFO = "$SYS.REQ.USER.INFO"
_ACCOUNT = "$JS.API.INFO"
_STREAMS = "$JS.API.STREAM.LIST"


async def nats_server(connection: Client, clock: Clock) -> NatsServer:
    """The server behind the connection. Its clock is asked several times; the best look counts."""
    bounds: list[Bound] = []
    told: Mapping[str, object] = {}
    for _ in range(CLOCK_LOOKS):
        sent_ms = clock.now_ms()
        told = _object((await _ask(connection, _INFO)).get("server"))
        bound = bound_of(sent_ms, _time_in(told), clock.now_ms() + 1)
        bounds += [bound] if bound is not None else []
    return NatsServer(
        server_id=str(told.get("id", "")),
        release=str(told.get("ver", "")),
        jetstream=bool(told.get("jetstream")),
        clustered=bool(told.get("cluster")),
        max_payload_bytes=connection.max_payload,
        clock=min(bounds, key=lambda bound: bound.width_ms) if bounds else None,
    )


async def account(connection: Client) -> Account:
    """JetStream's account. Raises Unavailable, InvalidSetting without JetStream."""
    told = await _ask(connection, _ACCOUNT)
    limits = _object(told.get("limits"))
    return Account(
        storage_bytes=_number(told, "storage"),
        storage_limit_bytes=_number(limits, "max_storage", -1),
        streams=_number(told, "streams"),
        streams_limit=_number(limits, "max_streams", -1),
        consumers=_number(told, "consumers"),
        consumers_limit=_number(limits, "max_consumers", -1),
    )


async def streams(connection: Client) -> tuple[KeptStream, ...]:
    """The account's streams, a thousand at most. Raises as `account`."""
    found: list[KeptStream] = []
    while len(found) < STREAM_COUNT_MAX:
        page = await _ask(connection, _STREAMS, {"offset": len(found)})
        listed = page.get("streams")
        if not isinstance(listed, list) or not listed:
            break
        found += [_stream(_object(one)) for one in listed]
        if len(found) >= _number(page, "total"):
            break
    return tuple(found)


async def _ask(
    connection: Client, subject: str, question: Mapping[str, object] | None = None
) -> Mapping[str, object]:
    payload = b"" if question is None else json.dumps(question).encode()
    try:
        with as_unavailable(f"answer {subject}"):
            answer = await connection.request(subject, payload, timeout=ANSWER_S_MAX)
    except Unavailable as error:
        if isinstance(error.__cause__, NoRespondersError):
            raise InvalidSetting(
                "JetStream does not answer",
                remedy="add a block `jetstream` to nats.conf, and check the account's rights",
            ) from error
        raise
    told = _object(json.loads(answer.data))
    if problem := told.get("error"):
        why = _object(problem).get("description", problem)
        raise InvalidSetting(f"NATS refuses {subject}: {why}", remedy="check the account's rights")
    return told


def _stream(told: Mapping[str, object]) -> KeptStream:
    config, state = _object(told.get("config")), _object(told.get("state"))
    replicas = _object(told.get("cluster")).get("replicas")
    followers = [_object(one) for one in replicas] if isinstance(replicas, list) else []
    return KeptStream(
        name=str(config.get("name", "")),
        storage=str(config.get("storage", "")),
        replicas=_number(config, "num_replicas", 1),
        messages=_number(state, "messages"),
        stored_bytes=_number(state, "bytes"),
        replicas_lagging=sum(
            1 for one in followers if one.get("offline") or not one.get("current")
        ),
    )


def _time_in(told: Mapping[str, object]) -> int:
    """The server's time; 0 if it tells none."""
    try:
        return instant_ms(str(told.get("time", "")))
    except ValueError:
        return 0


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _number(told: Mapping[str, object], name: str, default: int = 0) -> int:
    value = told.get(name, default)
    return value if isinstance(value, int) else default
