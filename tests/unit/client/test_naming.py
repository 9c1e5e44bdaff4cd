"""An error names the thing that the failed request was about."""

import pytest

from anabranch.client.wire.naming import naming
from anabranch.common.contracts.commands import CreateScope, ScaleStream
from anabranch.common.contracts.queries import ListContainers
from anabranch.common.contracts.reader_groups import DescribeReaderGroup
from anabranch.common.errors import AnabranchError, FieldValue, ScaleRefused, StreamNotFound
from anabranch.common.model.names import stream_ref

SCALE = ScaleStream.model_construct(command_id="a", scope="demo", stream="one")


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (CreateScope(command_id="a", scope="demo"), {"scope": "demo"}),
        (SCALE, {"stream": "demo/one"}),
        (DescribeReaderGroup(scope="demo", group="readers"), {"group": "demo/readers"}),
        (ListContainers(), {}),
        (stream_ref("demo/one"), {"stream": "demo/one"}),
    ],
)
def test_an_error_gets_the_name_in_the_request(
    request_: object, fields: dict[str, FieldValue]
) -> None:
    with pytest.raises(AnabranchError) as raised, naming(request_):
        raise AnabranchError("it failed", detail=1)

    assert raised.value.fields == {**fields, "detail": 1}


def test_a_refusal_of_a_segment_has_the_stream_in_its_remedy() -> None:
    with pytest.raises(ScaleRefused) as raised, naming(SCALE):
        raise ScaleRefused("the segment is not a current one", segment=3)

    assert "`anabranch stream segments demo/one`" in raised.value.remedy_for("command")


def test_the_name_that_an_error_has_already_is_kept() -> None:
    with pytest.raises(StreamNotFound) as raised, naming(SCALE):
        raise StreamNotFound("no such stream", stream="demo/other")

    assert raised.value.fields == {"stream": "demo/other"}
