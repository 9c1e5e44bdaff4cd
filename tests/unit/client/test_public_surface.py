"""What a program may import from `anabranch.client`, and that it needs nothing else."""

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest

import anabranch.client
from anabranch.client import (
    Client,
    Cluster,
    Containers,
    Controllers,
    EventReader,
    EventWriter,
    GroupReader,
    Operations,
    Parked,
    ReaderGroup,
    ReaderGroups,
    RevisionedStream,
    Scopes,
    StateSynchronizer,
    Stores,
    Streams,
    Transaction,
    TransactionPart,
    Transactions,
    connect,
)
from anabranch.client.admin.stream_views import StreamViews
from anabranch.client.writing.lane_writer import LaneWriter
from anabranch.common.errors import ERRORS_BY_CODE

PUBLIC = frozenset((Path(__file__).parents[2] / "golden" / "client_names.txt").read_text().split())
OWNERS = (
    Client,
    Cluster,
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
    StateSynchronizer,
    Stores,
    Streams,
    StreamViews,
    Transaction,
    TransactionPart,
    Transactions,
    connect,
)

RESOURCES = (
    Cluster,
    Containers,
    Controllers,
    Operations,
    Parked,
    ReaderGroups,
    Scopes,
    Stores,
    Streams,
)


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


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda kind: kind.__name__)
def test_every_method_of_a_resource_shows_its_use(resource: type) -> None:
    for name, method in inspect.getmembers(resource, inspect.isfunction):
        if name.startswith("_"):
            continue
        _, shown, example = inspect.cleandoc(method.__doc__ or "").partition("::\n")
        assert shown, f"{resource.__name__}.{name} shows no use"
        code = textwrap.dedent(example)
        ast.parse(f"async def use(client):\n{textwrap.indent(code, '    ')}")
        assert f".{name}(" in code
