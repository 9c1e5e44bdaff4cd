"""How a process ends because of errors: which were raised on purpose, and the exit code for them.

A failed or full disk has an exit code of its own (75, "try again later" in sysexits.h), because the
log may lie on that disk.
"""

from collections.abc import Sequence

from anabranch.common.errors import AnabranchError, DiskFailed

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_DISK_FAILED = 75


def expected_errors(error: BaseException) -> list[AnabranchError]:
    """The errors in `error` (possibly a group) if all were raised on purpose; otherwise none."""
    if isinstance(error, AnabranchError):
        return [error]
    if not isinstance(error, BaseExceptionGroup):
        return []
    found = [expected_errors(inner) for inner in error.exceptions]
    return [leaf for leaves in found for leaf in leaves] if all(found) else []


def exit_code(errors: Sequence[AnabranchError]) -> int:
    """The exit code of a process that these errors ended."""
    failed = any(isinstance(error, DiskFailed) for error in errors)
    return EXIT_DISK_FAILED if failed else EXIT_FAILED
