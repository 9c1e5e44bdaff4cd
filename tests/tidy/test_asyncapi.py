"""The committed AsyncAPI document is complete, well-formed and what the code says today."""

import json
from collections.abc import Iterator

from faststream.specification.asyncapi.v3_0_0.schema import ApplicationSchema

from anabranch.common.contracts import subjects
from anabranch.common.contracts.segment_requests import SEGMENT_REQUESTS
from anabranch.controller.handlers.registry import ANSWERED_BY as ANSWERED
from tidy import asyncapi


def references(node: object) -> Iterator[str]:
    """Every `$ref` below a node."""
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


def test_the_committed_document_is_what_the_contracts_say() -> None:
    assert asyncapi.PATH.read_text() == asyncapi.rendered(), "run make asyncapi and commit it"


def test_every_reference_in_it_leads_somewhere() -> None:
    document = asyncapi.document()
    found = set(references(document))
    assert found
    for reference in found:
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


def test_it_names_every_subject_that_is_served() -> None:
    addresses = {channel["address"] for channel in asyncapi.document()["channels"].values()}
    for name in ANSWERED:
        assert subjects.query(name) in addresses
    for verb in SEGMENT_REQUESTS:
        assert f"ana.seg.{{container}}.{verb}" in addresses
    assert {
        "ana.cmd.{bucket}.create_scope.{scope}",
        "ana.cmd.{bucket}.delete_stream.{scope}.{stream}",
        "ana.note.op.{operation}",
        "ana.load.{node}",
        "ana.copy.{node}.promise",
    } <= addresses


def test_others_read_it_as_asyncapi() -> None:
    read = ApplicationSchema.model_validate(json.loads(asyncapi.PATH.read_text()))
    assert set(read.operations) == asyncapi.document()["operations"].keys()
