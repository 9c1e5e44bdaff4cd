"""Why a connection failed, in the system's words."""

import os


def cause_of(error: Exception) -> str:
    """The cause for people. Event loops put the address where others put the cause."""
    number = error.errno if isinstance(error, OSError) else None
    if number is not None and number > 0:
        return os.strerror(number).lower()
    return str(error) or type(error).__name__
