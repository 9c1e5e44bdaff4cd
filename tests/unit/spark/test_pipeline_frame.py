"""The frame of all pipelines: arguments declared once, errors as text, and the catalogue."""

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module

import pytest

from anabranch.common.errors import InvalidRequest
from anabranch.spark.pipelines.arguments import StreamInput, argument, parsed
from anabranch.spark.pipelines.catalogue import CATALOGUE, PACKAGE, Row, row_of
from anabranch.spark.pipelines.frame import Pipeline, parser_of, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(StreamInput):
    rate: float | None = argument("events per second", default=None)
    parts: tuple[str, ...] = argument("names", default=())
    compact: bool = argument("rewrite", default=False)
    format: str = argument("kind of files", default="parquet", choices=("parquet", "delta"))


PIPELINE = Pipeline(
    name="sample",
    help="A sample.",
    arguments=Arguments,
    run=lambda _session, arguments, _progress: arguments,
    summary=lambda report: (report.stream,),
)


def arguments_of(*words: str) -> Arguments:
    return parsed(Arguments, parser_of(PIPELINE).parse_args(words))


def test_arguments_are_the_fields_of_their_dataclass() -> None:
    assert arguments_of("--stream", "a/b") == Arguments(stream="a/b")
    found = arguments_of(
        "--stream", "a/b", "--rate", "2.5", "--parts", "x", "y", "--compact", "--format", "delta"
    )
    assert found == Arguments(
        stream="a/b", rate=2.5, parts=("x", "y"), compact=True, format="delta"
    )


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--stream", "a/b", "--tier2", "file:///t", "--nats", "./endpoints.json"],
        ["--stream", "a/b", "--format", "csv"],
    ],
)
def test_wrong_usage_ends_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments_of(*words)
    assert ended.value.code == 2


def test_the_source_is_an_argument_else_the_variable() -> None:
    variable = {"ANABRANCH_NATS_URL": "nats://n"}
    assert Arguments(stream="a/b", tier2="file:///t").source(variable) == ("tier2", "file:///t")
    assert Arguments(stream="a/b", nats="nats://m").source(variable) == ("nats_url", "nats://m")
    assert Arguments(stream="a/b").source(variable) == ("nats_url", "nats://n")
    with pytest.raises(InvalidRequest, match="place of a cluster"):
        Arguments(stream="a/b").source({})


def test_of_an_error_in_a_task_only_our_own_text_is_shown() -> None:
    ours = "anabranch.common.errors.not_found.NotFound: no stream a/b; create it"
    text = f"Traceback …\n{ours}\n\tat java"
    assert shown(text) == "no stream a/b; create it"
    assert shown("[TABLE] is not found") == "[TABLE] is not found"


@pytest.mark.parametrize("row", CATALOGUE, ids=lambda row: row.name)
def test_each_row_of_the_catalogue_is_a_pipeline_with_its_name_and_help(row: Row) -> None:
    pipeline = import_module(f"{PACKAGE}.{row.module}").PIPELINE
    assert (pipeline.name, pipeline.help) == (row.name, row.help)
    assert row_of(row.module) == row


def test_the_package_lists_its_pipelines_and_refuses_unknown_ones() -> None:
    program = [sys.executable, "-P", "-m", PACKAGE]
    listed = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    names = [json.loads(line)["name"] for line in listed.stdout.splitlines()]
    assert names == [row.name for row in CATALOGUE]
    refused = subprocess.run(
        [*program, "none"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (refused.returncode, refused.stderr) == (
        2,
        f"there is no pipeline none; the pipelines are {', '.join(names)}\n",
    )
