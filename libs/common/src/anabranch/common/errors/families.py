"""The root of the error tree, and its families by the action that the caller must take."""

from collections.abc import Mapping
from typing import ClassVar, Self

from anabranch.common.errors.remedy import (
    Door,
    FieldValue,
    Remedy,
    filled,
    places_of,
)


class AnabranchError(Exception):
    """A failure that has no code of its own."""

    code: ClassVar[str] = "error"
    default_remedy: ClassVar[Remedy] = Remedy("read the log of the service that failed")

    def __init__(
        self, message: str, *, remedy: str | Remedy | None = None, **fields: FieldValue
    ) -> None:
        super().__init__(message)
        self.message = message
        self.own_remedy = Remedy(remedy) if isinstance(remedy, str) else remedy
        """The remedy of the place that raised the error; None: the remedy of its code."""
        self.fields: Mapping[str, FieldValue] = fields

    def __str__(self) -> str:
        details = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{self.message} ({details})" if details else self.message

    @property
    def remedy(self) -> str:
        """The caller's next action, for a caller of the Python client."""
        return self.remedy_for("api")

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # add_note appends to the list
        """The lines below the error in a traceback: the remedy, then the notes of others."""
        notes: list[str] = self.__dict__.setdefault("_notes", [""])
        notes[0] = f"try: {self.remedy}"
        return notes

    def remedy_for(self, door: Door | None) -> str:
        """The caller's next action in the words of this door; None: in words for every door."""
        own, known = self.own_remedy or Remedy(), self.default_remedy
        return (
            own.words(door)
            or own.text
            or filled(known.words(door), places_of(self.fields))
            or known.text
        )

    def copy(self) -> Self:
        """The same error as a new object, so that one failure can be raised to many callers."""
        return type(self)(self.message, remedy=self.own_remedy, **self.fields)

    def to_body(self, door: Door | None = None) -> dict[str, object]:
        """The error as plain data: {code, message, remedy, fields}."""
        said = {"code": self.code, "message": self.message, "remedy": self.remedy_for(door)}
        return {**said, "fields": dict(self.fields)}


class Retry(AnabranchError):
    """The request had no effect, and a repetition may succeed."""

    code = "retry"
    default_remedy = Remedy(
        "wait and try again",
        http="send the request again after the seconds in Retry-After",
    )


class Conflict(AnabranchError):
    """The present state forbids the request."""

    code = "conflict"
    default_remedy = Remedy("look at the present state, then decide again")


class Fenced(AnabranchError):
    """The caller, or the process that it asked, is no longer the owner."""

    code = "fenced"
    default_remedy = Remedy("look up the present owner and send the request to it")


class Invalid(AnabranchError):
    """The input is wrong, and a repetition will not help."""

    code = "invalid"
    default_remedy = Remedy("correct the request")


class NotFound(AnabranchError):
    """The named object does not exist, or does not exist here."""

    code = "not-found"
    default_remedy = Remedy("check the name")


class Unauthorized(AnabranchError):
    """The caller has no right to do this."""

    code = "unauthorized"
    default_remedy = Remedy("ask an administrator for the permission")


class Corrupt(AnabranchError):
    """Stored or received bytes are damaged."""

    code = "corrupt"
    default_remedy = Remedy("keep the files unchanged and restore them from a good copy")


class Defect(AnabranchError):
    """A mistake in the code was contained at a named edge."""

    code = "defect"
    default_remedy = Remedy("find the traceback in the service's log, and update the service")


class Unknown(AnabranchError):
    """The request may or may not have had its effect."""

    code = "unknown"
    default_remedy = Remedy("read the present state before you repeat the request")
