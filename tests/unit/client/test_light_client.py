"""What a program loads with the client: the parts that it uses, and no optional package."""

import ast
import asyncio
import importlib
import inspect
import json
import os
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping

import pytest

import anabranch.client
from anabranch.client import CodecMissing, connect
from anabranch.client.exports import MODULES
from anabranch.common.contracts import subjects
from anabranch.common.contracts.queries import ScopeList
from kit.served_streams import served_streams
from kit.spans import UntouchableTracer

PROGRAM = """
import json, sys
import anabranch.client
named = sorted(sys.modules)
from anabranch.client import connect
connecting = sorted(sys.modules)
import asyncio
async def ask():
    async with connect(sys.argv[1]) as client:
        return [scope async for scope in client.scopes.list()]
print(json.dumps([named, connecting, asyncio.run(ask()), sorted(sys.modules)]))
"""
PROGRAM_S_MAX = 60.0
HEAVY = {"asyncio", "msgspec", "nats", "pydantic"}
OPTIONAL = {
    "cyclopts", "httpx", "numpy", "obstore", "opentelemetry", "prometheus_client", "pyarrow",
    "pydantic_settings", "redis", "rich", "structlog", "uvloop", "websockets", "zstandard",
}  # fmt: skip
UNUSED_PARTS = {
    f"anabranch.client.{part}" for part in ("groups", "one_segment", "transactions", "writing")
}


async def tiny_nats(reader: StreamReader, writer: StreamWriter) -> None:
    """Enough of a NATS server for a client that asks a controller for its scopes."""
    writer.write(b'INFO {"server_id": "tiny", "version": "2.12.0", "headers": true}\r\n')
    inbox = b""
    while line := await reader.readline():
        match line.split():
            case [b"PING"]:
                writer.write(b"PONG\r\n")
            case [b"SUB", _, *_, number]:
                inbox = number
            case [b"HPUB" | b"PUB", subject, reply, *_, size]:
                await reader.readexactly(int(size) + 2)
                if subject.decode() == subjects.query("list_scopes"):
                    body = ScopeList(scopes=("plant",)).model_dump_json().encode()
                    writer.write(b"MSG %b %b %d\r\n%b\r\n" % (reply, inbox, len(body), body))
    writer.close()


def among(names: set[str], modules: list[str]) -> list[str]:
    """The modules that have one of these names, or are inside one that has."""
    return [each for each in modules if any(f"{each}.".startswith(f"{name}.") for name in names)]


async def test_a_program_that_asks_one_question_loads_no_optional_package() -> None:
    async with served_streams(tiny_nats) as port:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", PROGRAM, f"nats://127.0.0.1:{port}",
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        async with asyncio.timeout(PROGRAM_S_MAX):
            output, _ = await process.communicate()
    named, connecting, scopes, asked = json.loads(output)

    assert among(HEAVY | OPTIONAL, named) == []
    assert among(OPTIONAL | UNUSED_PARTS, connecting) == []
    assert scopes == ["plant"]
    assert among(OPTIONAL | UNUSED_PARTS, asked) == []


def imported_for_type_checkers() -> Mapping[str, str]:
    """The module by the name, as the block says that only type checkers read."""
    body = ast.parse(inspect.getsource(anabranch.client)).body
    [block] = [each for each in body if isinstance(each, ast.If) and imports_in(each)]
    return imports_in(block)


def imports_in(block: ast.If) -> Mapping[str, str]:
    return {
        alias.name: str(each.module)
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }


def test_type_checkers_see_the_names_that_programs_find() -> None:
    assert imported_for_type_checkers() == MODULES
    assert set(anabranch.client.__all__) == set(MODULES)
    assert set(dir(anabranch.client)) >= set(MODULES)


def test_every_public_name_is_that_of_its_module_and_is_found_at_once_the_next_time() -> None:
    for name, module in MODULES.items():
        expected = getattr(importlib.import_module(module), name)

        assert getattr(anabranch.client, name) is expected
        assert vars(anabranch.client)[name] is expected


def test_a_name_that_the_client_does_not_have_is_missing_as_ever() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Shovel'"):
        _ = anabranch.client.Shovel  # type: ignore[attr-defined]


async def test_a_tracer_without_opentelemetry_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    monkeypatch.setattr("anabranch.client.tracing.find_spec", lambda _: None)

    with pytest.raises(CodecMissing) as refused:
        await connect("nats://127.0.0.1:1", tracer=UntouchableTracer())
    assert refused.value.remedy == "pip install 'anabranch-client[telemetry]'"
