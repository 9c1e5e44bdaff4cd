"""The commands `anabranch completion …`: the shell completes commands and options."""

import os
import sys
from pathlib import Path
from typing import Literal

from anabranch.cli.app import application
from anabranch.cli.output import Output
from anabranch.cli.session import Shown
from anabranch.common.errors import InvalidRequest

Shell = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = ("bash", "zsh", "fish")
_SHOWN = Shown()


def show(shell: Shell, /) -> None:
    """Print the completion script of a shell."""
    sys.stdout.write(application(None).generate_completion(shell=shell))


def install(
    shell: Shell | None = None, /, *, file: Path | None = None, shown: Shown = _SHOWN
) -> None:
    """Install the completion for your shell.

    The script is a snapshot of the commands: install it again after an update.

    Parameters
    ----------
    shell
        bash, zsh or fish; by default the one that SHELL names.
    file
        The file to write, instead of the shell's usual place; the shell's start-up file then stays
        as it is.
    """
    chosen = shell or shell_of(os.environ.get("SHELL", ""))
    try:
        written = application(None).install_completion(
            shell=chosen, output=file, add_to_startup=file is None
        )
    except OSError as error:
        raise InvalidRequest(
            "the completion cannot be written",
            remedy="name a file that you can write: --file PATH",
            cause=str(error),
        ) from error
    Output(shown.form).done(
        f"installed the completion for {chosen} in {written}; open a new shell to use it",
        {"shell": chosen, "file": str(written)},
    )


def shell_of(path: str) -> Shell:
    """The shell that the variable SHELL names. Raises InvalidRequest for an unknown one."""
    name = Path(path).name
    for shell in SHELLS:
        if shell == name:
            return shell
    raise InvalidRequest(
        "your shell is not known",
        remedy="name it: `anabranch completion install bash`, or zsh, or fish",
        shell=path or "unset",
    )
