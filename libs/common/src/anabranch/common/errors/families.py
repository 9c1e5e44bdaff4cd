"""The root of the error tree, and its families by the action that the caller must take."""

from collections.abc import Mapping
from typing import ClassVar, Self

FieldValue = str | int | float | bool | None


class AnabranchError(Exception):
    """The root of all errors that this project raises on purpose."""

    code: ClassVar[str] = "error"
    default_remedy: ClassVar[str] = "read the log of the service that answered"

    def __init__(self, message: str, *, remedy: str | None = None, **fields: FieldValue) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy or self.default_remedy
        self.fields: Mapping[str, FieldValue] = fields

    def __str__(self) -> str:
        details = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{self.message} ({details})" if details else self.message

    def copy(self) -> Self:
        """The same error as a new object, so that one failure can be raised to many callers."""
        return type(self)(self.message, remedy=self.remedy, **self.fields)

    def to_body(self) -> dict[str, object]:
        """The error as plain data: {code, message, remedy, fields}."""
        said = {"code": self.code, "message": self.message, "remedy": self.remedy}
        return {**said, "fields": dict(self.fields)}


class Retry(AnabranchError):
    code = "retry"
    default_remedy = "wait and try again"


class Conflict(AnabranchError):
    code = "conflict"
    default_remedy = "read the current state, then decide again"


class Fenced(AnabranchError):
    code = "fenced"
    default_remedy = "look up the current owner and send the request to it"


class Invalid(AnabranchError):
    code = "invalid"
    default_remedy = "correct the request"


class NotFound(AnabranchError):
    code = "not-found"
    default_remedy = "check the name"


class Unauthorized(AnabranchError):
    code = "unauthorized"
    default_remedy = "ask an administrator for the permission"


class Corrupt(AnabranchError):
    code = "corrupt"
    default_remedy = "keep the files unchanged and restore from a good copy"


class Defect(AnabranchError):
    """An unexpected error, contained at a named edge: a mistake of the programmer."""

    code = "defect"
    default_remedy = "find the traceback in the log, and update the service"


class Unknown(AnabranchError):
    code = "unknown"
    default_remedy = "read the current state before you repeat the request"
