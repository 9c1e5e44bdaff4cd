"""`NatsTarget`: the addresses of the NATS servers, the credentials for them, and TLS.

A program parses its settings, a URL or an endpoints file into a target once and hands the target
on. `adapters.nats_options` turns it into the options of the NATS library. The addresses carry no
credentials, so log lines and errors may show them; `repr` masks the credentials.

`anabranch up` writes an endpoints file, and an operator may write one for any cluster:

    {"nats": "tls://a:4222,tls://b:4222",            one address or several
     "nats_credentials": "nats-credentials.json",    optional: a credentials file
     "nats_tls": {"ca": …, "cert": …, "key": …}}     optional: PEM files

Relative paths in it start at the directory of the endpoints file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from anabranch.common.errors import InvalidSetting, Unauthorized, Unavailable
from anabranch.common.runtime.addresses import ENDPOINTS_FILE

_SCHEMES = ("nats", "tls", "ws", "wss")
_ENCRYPTED = ("tls", "wss")


@dataclass(frozen=True, slots=True)
class Login:
    """A user and the password of that user."""

    user: str
    password: SecretStr

    @classmethod
    def of(cls, user: str, password: str) -> Self:
        """The login with this password as plain text."""
        return cls(user, SecretStr(password))


@dataclass(frozen=True, slots=True)
class Token:
    """A token that all clients of a server share."""

    token: SecretStr


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. `ca` None: the authorities that the system trusts. `cert` and `key` identify this
    program to the server; either both are given or none."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise InvalidSetting(
                "a TLS certificate needs its key, and a key its certificate",
                remedy="name both files, or neither",
            )


@dataclass(frozen=True, slots=True)
class NatsTarget:
    """The NATS servers to connect to. One set of credentials serves all of them."""

    addresses: tuple[str, ...]
    """URLs without credentials; at least one."""
    credentials: Login | Token | Path | None = None
    """A path names a credentials file, which is read whenever a connection opens."""
    tls: TlsFiles | None = None
    """None: TLS with the system's authorities for `tls://` and `wss://`, otherwise no TLS."""

    @classmethod
    def at(
        cls, addresses: str, *, credentials_file: Path | None = None, tls: TlsFiles | None = None
    ) -> Self:
        """Parse URLs, separated by commas, as `nats://user:password@host:4222`.

        A user without a password is a token. Percent-encode `@`, `/` and commas in either.
        Raises InvalidSetting, whose text contains no credentials.
        """
        parsed = [_parsed_address(text.strip(), addresses) for text in addresses.split(",")]
        given = parsed[0][1]
        if any(other not in (None, given) for _, other in parsed[1:]):
            raise InvalidSetting(
                "the addresses of the NATS servers carry different credentials",
                remedy="give the same ones in every address, or in the first one alone",
            )
        if given is not None and credentials_file is not None:
            raise InvalidSetting(
                "the credentials for NATS are given twice",
                remedy="give them in the URL or in a credentials file, not in both",
            )
        return cls(tuple(address for address, _ in parsed), given or credentials_file, tls)

    @property
    def encrypted(self) -> bool:
        """Whether a connection must use TLS."""
        return self.tls is not None or any(
            urlsplit(address).scheme in _ENCRYPTED for address in self.addresses
        )

    def __str__(self) -> str:
        """The addresses, without credentials."""
        return ",".join(self.addresses)


class _EndpointsTls(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


class _Endpoints(BaseModel):
    """The fields of an endpoints file about NATS; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    nats: str
    nats_credentials: Path | None = None
    nats_tls: _EndpointsTls | None = None


def nats_target(where: NatsTarget | Path | str) -> NatsTarget:
    """The target in a program's argument.

    A `Path` names a data directory of `anabranch up`, or an endpoints file. Text without `://`
    names the same if it contains a slash, begins with a dot or ends with `.json`; any other text is
    one URL or several.
    Raises Unavailable if no cluster has published an endpoints file there, Unauthorized if another
    user owns it, InvalidSetting.
    """
    if isinstance(where, NatsTarget):
        return where
    if isinstance(where, Path) or _is_path(where):
        return _published(Path(where))
    return NatsTarget.at(where)


def _is_path(text: str) -> bool:
    if "://" in text:
        return False
    named = text.startswith((".", "/")) or text.endswith(".json")
    return named or ("/" in text and "@" not in text)


def _published(path: Path) -> NatsTarget:
    """The target in an endpoints file, or in a data directory's endpoints file."""
    try:
        file = (path / ENDPOINTS_FILE if path.is_dir() else path).absolute()
        text = file.read_bytes()
    except PermissionError as error:
        raise Unauthorized(
            "the endpoints file belongs to another user",
            remedy="run as the user that started the cluster",
            path=str(path),
        ) from error
    except OSError as error:
        raise Unavailable(
            "no cluster has published its endpoints in this data directory",
            remedy="start a cluster with `anabranch up`, or name a NATS server by its URL",
            path=str(path),
        ) from error
    try:
        return _target_in(text, file.parent)
    except ValidationError as error:
        raise InvalidSetting(
            "the endpoints file cannot be understood",
            remedy='write it as {"nats": "nats://host:4222"}; docs/nats.md lists its other fields',
            path=str(file),
        ) from error


def _target_in(text: bytes, folder: Path) -> NatsTarget:
    found = _Endpoints.model_validate_json(text)
    tls = None
    if found.nats_tls is not None:
        named = {name: folder / file for name, file in found.nats_tls if file is not None}
        tls = TlsFiles(**named)
    credentials = found.nats_credentials and folder / found.nats_credentials
    return NatsTarget.at(found.nats, credentials_file=credentials, tls=tls)


def _parsed_address(text: str, whole: str) -> tuple[str, Login | Token | None]:
    """Split an address into itself without credentials and these. Raises InvalidSetting."""
    parts = _split(text if "://" in text else f"nats://{text}")
    if parts is None:
        raise InvalidSetting(
            "not the address of a NATS server",
            remedy="write it as nats://host:4222; percent-encode @, / and commas in a password",
            address=whole.rpartition("@")[2],
        )
    _, _, place = parts.netloc.rpartition("@")
    address = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
    if not parts.username:
        return address, None
    user = unquote(parts.username)
    if parts.password is None:
        return address, Token(SecretStr(user))
    return address, Login.of(user, unquote(parts.password))


def _split(url: str) -> SplitResult | None:
    """The parts of a URL; None if it cannot name a NATS server."""
    try:
        parts = urlsplit(url)
        wrong = not parts.hostname or parts.port == 0 or parts.query or parts.fragment
    except ValueError:
        return None
    pathless = parts.scheme in ("ws", "wss") or parts.path in ("", "/")
    return None if wrong or not pathless or parts.scheme not in _SCHEMES else parts
