"""What a program may import from `anabranch.client`, and that it needs nothing else."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import get_origin, get_type_hints

import pytest

import anabranch.client
import anabranch.client.blocking
from anabranch.client import (
    ByteStream,
    Client,
    Cluster,
    Consumers,
    Containers,
    Controllers,
    Event,
    EventBatch,
    EventReader,
    EventWriter,
    GroupCheckpoint,
    GroupReader,
    GroupReaderSettings,
    Operations,
    Parked,
    RangeReader,
    ReaderGroup,
    ReaderGroups,
    RecordBatch,
    RevisionedStream,
    Scan,
    Scopes,
    Serializer,
    SpuGroups,
    Spus,
    StateCodec,
    StateSynchronizer,
    Stores,
    Streams,
    Table,
    Tables,
    TopicConsumer,
    TopicGroup,
    TopicGroupReader,
    TopicProducer,
    Topics,
    Transaction,
    TransactionPart,
    Transactions,
    Watch,
    connect,
)
from anabranch.client.admin.stream_views import StreamViews
from anabranch.client.administration import Administration
from anabranch.client.blocking import Blocking, BlockingClient
from anabranch.client.topics.admin import TopicAdministration
from anabranch.client.writing.lane_writer import LaneWriter
from anabranch.common.errors import ERRORS_BY_CODE

PUBLIC = frozenset((Path(__file__).parents[2] / "golden" / "client_names.txt").read_text().split())
OWNERS = (
    Administration,
    Client,
    Cluster,
    Consumers,
    Containers,
    Controllers,
    EventWriter,
    LaneWriter,
    EventReader,
    GroupReader,
    Operations,
    Parked,
    ReaderGroup,
    ReaderGroups,
    RevisionedStream,
    Scopes,
    SpuGroups,
    Spus,
    StateSynchronizer,
    Stores,
    Streams,
    StreamViews,
    Tables,
    TopicAdministration,
    TopicConsumer,
    TopicGroup,
    TopicGroupReader,
    TopicProducer,
    Topics,
    Transaction,
    TransactionPart,
    Transactions,
    connect,
)

ANSWERS = frozenset(
    {
        anabranch.client.CheckpointStatus,
        anabranch.client.Entries,
        anabranch.client.Lag,
        anabranch.client.Position,
        anabranch.client.ReaderGroupStatus,
        anabranch.client.SegmentRange,
        anabranch.client.SegmentStatus,
    }
)
"""Values that calls return. The calls show them; so do they for all contracts and models."""
USED = (
    *(
        kind
        for name in anabranch.client.__all__
        if inspect.isclass(kind := getattr(anabranch.client, name))
        and kind.__module__.startswith("anabranch.client.")
        and kind not in ANSWERS
    ),
    Blocking,
    BlockingClient,
)
LIFE = frozenset({"close", "open"})
"""A class whose use is a `with` block shows these by it."""
CALLED_BY_THE_CLIENT = frozenset(
    {name for protocol in (Serializer, StateCodec) for name in vars(protocol) if name[0] != "_"}
)
KINDS: Mapping[str, type] = {
    "batch": EventBatch,
    "changes": Watch,
    "blocks": RangeReader,
    "checkpoint": GroupCheckpoint,
    "client": Client,
    "event": Event,
    "file": ByteStream,
    "group": ReaderGroup,
    "log": RevisionedStream,
    "consumer": TopicConsumer,
    "part": TransactionPart,
    "producer": TopicProducer,
    "scan": Scan,
    "shared": StateSynchronizer,
    "table": Table,
    "transactions": Transactions,
    "txn": Transaction,
    "writer": EventWriter,
}
"""The classes of the names that all uses have in common; `reader` is of either kind."""
FIELDS_UNDOCUMENTED_MAX = 5


def test_the_public_names_are_these() -> None:
    assert sorted(anabranch.client.__all__) == sorted(PUBLIC)
    assert all(hasattr(anabranch.client, name) for name in PUBLIC)


def test_every_error_that_a_public_method_names_can_be_imported_beside_it() -> None:
    errors = {kind.__name__ for kind in ERRORS_BY_CODE.values()}
    named = {
        word
        for owner in OWNERS
        for member in (owner, *vars(owner).values())
        for word in re.findall(r"[A-Z]\w+", getattr(member, "__doc__", None) or "")
    }
    assert "BufferFull" in named
    assert named & errors <= PUBLIC


def uses(documented: object) -> list[str]:
    """The blocks of code in a docstring."""
    text = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", text + "\n")
    return [textwrap.dedent(block).strip() for block in blocks]


def public_methods(kind: type) -> dict[str, object]:
    found = inspect.getmembers(
        kind, lambda each: inspect.isfunction(each) or inspect.ismethod(each)
    )
    return {
        name: method
        for name, method in found
        if name[0] != "_" and method.__module__.startswith("anabranch.")
    }


def documented_parts() -> Iterator[tuple[type | ModuleType, object]]:
    """Everything that may show a use, and the class or module that it belongs to."""
    for module in (anabranch.client, anabranch.client.blocking):
        yield module, module
        yield module, module.connect
    for kind in (*USED, StreamViews):
        yield kind, kind
        for name, member in inspect.getmembers(kind):
            if name[0] != "_":
                yield kind, member


def type_of(node: ast.expr, kinds: Mapping[str, type]) -> object:
    """The class of an expression; None if its names and annotations do not tell."""
    match node:
        case ast.Name(name):
            return kinds.get(name)
        case ast.Await(inner):
            return type_of(inner, kinds)
        case ast.Attribute(inner, name):
            member = member_of(type_of(inner, kinds), name)
            return returned(member.fget) if isinstance(member, property) else None
        case ast.Call(ast.Attribute(inner, name)):
            member = member_of(type_of(inner, kinds), name)
            return returned(member) if inspect.isfunction(member) else None
    return None


def member_of(kind: object, name: str) -> object:
    return inspect.getattr_static(kind, name, None) if isinstance(kind, type) else None


def returned(function: object) -> object:
    try:
        found = get_type_hints(function)["return"]
    except NameError:  # of a package that is imported where it is needed
        return None
    return get_origin(found) or found


def mistakes(code: str, kinds: Mapping[str, type]) -> Iterator[str]:
    """Calls of methods that do not exist, or that do not take these arguments."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(ast.Attribute(inner, name), positional, keywords):
                kind = type_of(inner, kinds)
                if not isinstance(kind, type) or not kind.__module__.startswith("anabranch."):
                    continue
                method = getattr(kind, name, None)
                if method is None:
                    yield f"{kind.__name__} has no method {name}"
                    continue
                given = [kind] * isinstance(member_of(kind, name), FunctionType)
                try:
                    inspect.signature(method).bind(
                        *given, *positional, **{each.arg or "": each for each in keywords}
                    )
                except TypeError as error:
                    yield f"{kind.__name__}.{name}: {error}"


@pytest.mark.parametrize("kind", USED, ids=lambda kind: kind.__name__)
def test_every_class_and_method_of_the_client_shows_its_use(kind: type) -> None:
    shown = uses(kind)
    assert shown, f"{kind.__name__} shows no use"
    enters = any("with " in code for code in shown)
    for name, method in public_methods(kind).items():
        if name in CALLED_BY_THE_CLIENT or (name in LIFE and enters):
            continue
        assert any(f"{name}(" in code for code in uses(method)), (
            f"{kind.__name__}.{name} shows no use"
        )


@pytest.mark.parametrize("connecting", [connect, anabranch.client.blocking.connect])
def test_both_ways_to_connect_show_their_use(connecting: object) -> None:
    assert uses(connecting)


def test_every_use_compiles_and_calls_methods_that_exist() -> None:
    wrong = []
    for owner, part in documented_parts():
        kinds = {**KINDS, "reader": EventReader}
        if owner in (RecordBatch, TopicConsumer):
            kinds["batch"] = RecordBatch
        elif owner in (TopicGroup, TopicGroupReader, Topics):
            kinds |= {"batch": RecordBatch, "group": TopicGroup, "reader": TopicGroupReader}
        if owner in (GroupReader, GroupReaderSettings, ReaderGroup):
            kinds["reader"] = GroupReader
        elif owner in (Blocking, BlockingClient):
            kinds = {}  # it has the methods of what it stands for
        for code in uses(part):
            compile(code, str(part), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            wrong += [f"{part}: {each}" for each in mistakes(code, kinds)]
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "mistake"),
    [
        ("client.streams.creat('a/b')", "Streams has no method creat"),
        ("await client.batch.distance('a/b')", "BatchClient.distance: missing a required"),
        ("client.writer('a/b').write(b'', keys='c')", "EventWriter.write: got an unexpected"),
        ("txn.commit(b'', True)", "Transaction.commit: too many positional"),
    ],
)
def test_a_use_that_would_fail_is_found(code: str, mistake: str) -> None:
    [found] = mistakes(code, KINDS)
    assert found.startswith(mistake)


def undocumented_fields(kind: type) -> set[str]:
    """The fields of a class that neither it nor its bases describe: below the field, or by name."""
    missing: set[str] = set()
    for each in kind.__mro__:
        if not each.__module__.startswith("anabranch."):
            continue
        [body] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(body, ast.ClassDef)
        described = set(re.findall(r"`(\w+)`", each.__doc__ or ""))
        for field, following in zip(body.body, [*body.body[1:], None], strict=True):
            match field, following:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str())):
                    described.add(name)
                case ast.AnnAssign(ast.Name(name)), _:
                    missing.add(name)
        missing -= described
    return missing


def test_every_field_of_a_class_with_many_is_documented() -> None:
    kinds = [getattr(anabranch.client, name) for name in anabranch.client.__all__]
    wrong = {}
    for kind in kinds:
        fields = {*getattr(kind, "__dataclass_fields__", {}), *getattr(kind, "model_fields", {})}
        if len(fields) > FIELDS_UNDOCUMENTED_MAX:
            wrong[kind.__name__] = sorted(undocumented_fields(kind) & fields - {"ok"})
    assert {name: missing for name, missing in wrong.items() if missing} == {}
