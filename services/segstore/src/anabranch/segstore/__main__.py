"""``python -m anabranch.segstore``: one segment store, configured by its environment."""

import sys

from anabranch.common.runtime.service import run_service, settings_or_exit
from anabranch.segstore.settings import SegstoreSettings
from anabranch.segstore.wiring import serve


def main() -> int:
    """Run until told to stop; the result is the exit code."""
    settings = settings_or_exit("segstore", SegstoreSettings.from_environment)
    return run_service(
        "segstore",
        lambda lifetime: serve(settings, lifetime),
        health_bind=settings.health_bind,
        log_level=settings.log_level,
    )


if __name__ == "__main__":
    sys.exit(main())
