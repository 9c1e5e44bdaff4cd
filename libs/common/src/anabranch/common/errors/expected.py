"""Tells errors that were raised on purpose from mistakes in the code. Pure."""

from anabranch.common.errors.families import AnabranchError


def expected_errors(error: BaseException) -> list[AnabranchError]:
    """The errors in `error` (possibly a group) if all were raised on purpose; otherwise none."""
    if isinstance(error, AnabranchError):
        return [error]
    if not isinstance(error, BaseExceptionGroup):
        return []
    found = [expected_errors(inner) for inner in error.exceptions]
    return [leaf for leaves in found for leaf in leaves] if all(found) else []
