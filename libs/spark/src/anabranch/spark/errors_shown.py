"""How errors reach users of Spark, which shows only an error's text."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def told_to_users() -> Iterator[None]:
    """Add the remedy to the error's text."""
    from anabranch.common.errors import AnabranchError

    try:
        yield
    except AnabranchError as error:
        raise type(error)(
            f"{error.message}; {error.remedy}", remedy=error.remedy, **error.fields
        ) from error
