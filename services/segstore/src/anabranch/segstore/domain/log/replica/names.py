"""The name of a copy in its store's own log: the id of the log and the id of the copy. Pure."""

SEPARATOR = "."


def copy_name(log_id: str, copy_id: str) -> str:
    """The id of a copy in the local log's list."""
    return f"{log_id}{SEPARATOR}{copy_id}"


def parse_copy_name(name: str) -> tuple[str, str] | None:
    """(log id, copy id); None if a log of this name is not replicated."""
    log_id, separator, copy_id = name.rpartition(SEPARATOR)
    return (log_id, copy_id) if separator else None


def mended_name(name: str, repair: str) -> str:
    """The name of a copy after a repair of its journal, which may have lost messages of it.

    It is another copy, so it is in no ISR. `repair` differs for each repair of a journal.
    """
    assert parse_copy_name(name) is not None, "only a copy gets another name"
    return f"{name}-{repair}"
