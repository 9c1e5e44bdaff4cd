"""Adds to an error the name of the thing that the failed request was about.

A controller may refuse a segment or an epoch without naming its stream, and the caller's next
action is a command or request about that stream. The client knows the name from the request.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from anabranch.common.contracts.place import place_of
from anabranch.common.errors import AnabranchError


@contextmanager
def naming(request: object) -> Iterator[None]:
    """Run the block; an error that leaves it has the name of the request's thing as a field: its
    stream, group or table, else its scope.

    `request`: anything with fields of these names.
    """
    try:
        yield
    except AnabranchError as error:
        error.fields = {**_names(request), **error.fields}
        raise


def _names(request: object) -> Mapping[str, str]:
    place = place_of(request)
    if not place.scope:
        return {}
    return {"scope" if place.part is None else place.part.field: str(place)}
