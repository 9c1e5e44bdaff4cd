"""The options of the NATS library for a `NatsTarget`: servers, credentials and TLS.

A credentials file has one of three formats, which its content determines:

    {"user": …, "password": …} or {"token": …}      JSON, as `anabranch up` writes it
    -----BEGIN NATS USER JWT----- …                 a `.creds` file of the tool `nsc`
    SU…                                             the seed of a user's nkey

Every new connection reads the file again, so that a running program uses changed credentials.
"""

import importlib.util
import json
import ssl
from pathlib import Path
from typing import Required, TypedDict

from anabranch.common.errors import CodecMissing, InvalidSetting
from anabranch.common.runtime.nats_target import Login, NatsTarget, TlsFiles, Token

_CREDS_HEAD = "-----BEGIN NATS USER JWT-----"
_SEED_HEAD = "SU"
_KINDS = ({"user", "password"}, {"token"})


class NatsOptions(TypedDict, total=False):
    """Options of `nats.aio.client.Client.connect`."""

    servers: Required[list[str]]
    user: str
    password: str
    token: str
    user_credentials: str
    nkeys_seed: str
    tls: ssl.SSLContext


def connect_options(target: NatsTarget) -> NatsOptions:
    """Build the options. They hold secrets, so never log them.

    Raises InvalidSetting if a file of the target cannot be used, CodecMissing without `nkeys`.
    """
    options = NatsOptions(servers=list(target.addresses))
    match target.credentials:
        case None:
            pass
        case Login(user, password):
            options["user"], options["password"] = user, password.get_secret_value()
        case Token(token):
            options["token"] = token.get_secret_value()
        case Path() as file:
            _add_credentials_of(file, options)
    if target.encrypted:
        options["tls"] = _tls_context(target.tls or TlsFiles())
    return options


def _add_credentials_of(file: Path, options: NatsOptions) -> None:
    try:
        text = file.read_text().strip()
    except (OSError, ValueError) as error:
        raise InvalidSetting(
            "the credentials file for NATS cannot be read",
            remedy="check its name and its permissions",
            path=str(file),
            cause=getattr(error, "strerror", None) or type(error).__name__,
        ) from None
    if text.startswith(_CREDS_HEAD):
        _require_nkeys(file)
        options["user_credentials"] = str(file)
    elif text.startswith(_SEED_HEAD) and text.isalnum():
        _require_nkeys(file)
        options["nkeys_seed"] = str(file)
    else:
        options.update(_told_in_json(text, file))


def _told_in_json(text: str, file: Path) -> NatsOptions:
    # Drop the cause: the text of a JSON error may be shown, and it contains secrets.
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    texts = isinstance(found, dict) and all(isinstance(one, str) for one in found.values())
    if not texts or set(found) not in _KINDS:
        raise InvalidSetting(
            "the credentials file for NATS cannot be understood",
            remedy='write {"user": …, "password": …} or {"token": …} into it, or name the .creds '
            "file of a user or the file of an nkey seed",
            path=str(file),
        )
    options: NatsOptions = found
    return options


def _require_nkeys(file: Path) -> None:
    if importlib.util.find_spec("nkeys") is None:
        raise CodecMissing(
            "credentials that sign need a library that is not installed",
            remedy="pip install 'nats-py[nkeys]'",
            package="nkeys",
            path=str(file),
        )


def _tls_context(files: TlsFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.ca)
        if files.cert is not None:
            # With an empty password, an encrypted key fails instead of a prompt on the terminal.
            context.load_cert_chain(files.cert, files.key, password="")
    except OSError as error:  # SSLError is a subclass.
        raise InvalidSetting(
            "the TLS files for NATS cannot be used",
            remedy="check their names and permissions; they are PEM files, the key not encrypted",
            cause=error.strerror or str(error),
            **{name: str(path) for name in ("ca", "cert", "key") if (path := getattr(files, name))},
        ) from error
    return context
