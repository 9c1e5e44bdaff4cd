"""What the MessagePack decoder raises for bytes that are no message of the wanted shape.

It documents only the first. Text that is not UTF-8, and nesting deeper than the interpreter's
stack, come as Python's own errors; whoever decodes bytes from outside must be ready for all.
"""

import msgspec

MALFORMED: tuple[type[Exception], ...] = (
    msgspec.MsgspecError,
    UnicodeDecodeError,
    RecursionError,
)
