"""Parts of options: numbers, switches, and the refusal of unknown names. Pure."""

from collections.abc import Collection, Mapping

from anabranch.common.errors import InvalidRequest

Texts = Mapping[str, str]
"""Options as Spark passes them: names in lower case."""


def refuse_unknown(options: Texts, known: Collection[str]) -> None:
    """Raises InvalidRequest, which lists the known options."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidRequest(
            f"there is no option {unknown[0]!r}", remedy=f"known are {', '.join(sorted(known))}"
        )


def number(name: str, text: str | None, default: int, *, most: int | None = None) -> int:
    """A whole positive number. Raises InvalidRequest."""
    if text is None:
        return default
    digits = text.isascii() and text.isdigit()
    if not digits or int(text) < 1 or (most is not None and int(text) > most):
        upper = "" if most is None else f" of at most {most}"
        raise InvalidRequest(
            f"the option {name} is not understood",
            remedy=f"give a whole positive number{upper}", found=text[:200],
        )  # fmt: skip
    return int(text)


def switch(name: str, text: str | None, default: bool) -> bool:
    """`true` or `false`, in any case. Raises InvalidRequest."""
    match (text or "").lower():
        case "":
            return default
        case "true":
            return True
        case "false":
            return False
        case _:
            raise InvalidRequest(
                f"the option {name} is not understood", remedy="give true or false",
                found=(text or "")[:200],
            )  # fmt: skip
