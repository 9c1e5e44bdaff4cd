"""The errors of the MessagePack decoder for bytes that are not a message of the expected shape.

msgspec documents only the first. Text that is not UTF-8, and nesting deeper than the interpreter's
stack, raise Python's own errors; code that decodes bytes from outside must catch all of them.
"""

import msgspec

MALFORMED: tuple[type[Exception], ...] = (
    msgspec.MsgspecError,
    UnicodeDecodeError,
    RecursionError,
)
