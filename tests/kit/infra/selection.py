"""Which provider serves this run of the tests, and what is said when it cannot."""

import os

import pytest

from kit.infra import VARIABLE, Infra, Provider
from kit.infra.embedded import EmbeddedInfra

NOTHING_TESTED = "no containers for this test: "


def chosen_provider() -> Provider:
    """The provider that the environment names; embedded if it names none.

    Raises pytest.UsageError for another word.
    """
    word = os.environ.get(VARIABLE) or Provider.EMBEDDED
    try:
        return Provider(word)
    except ValueError:
        known = " or ".join(Provider)
        raise pytest.UsageError(f"{VARIABLE}={word} names no provider: say {known}") from None


def start_infra(provider: Provider) -> Infra:
    """The provider; skips the test that asks for containers where no engine answers."""
    if provider is Provider.EMBEDDED:
        return EmbeddedInfra()
    from kit.infra.containers import ContainerInfra, why_no_engine

    missing = why_no_engine()
    if missing is not None:
        pytest.skip(NOTHING_TESTED + missing)
    return ContainerInfra()


def tell_what_was_skipped(reporter: pytest.TerminalReporter) -> None:
    """The reason why tests had no containers, where nobody can overlook it."""
    skipped = [report.longrepr for report in reporter.stats.get("skipped", [])]
    reasons = [told[2] for told in skipped if isinstance(told, tuple)]
    missing = [text for text in reasons if NOTHING_TESTED in text]
    if missing:
        title = f"SKIPPED: {len(missing)} tests found no containers"
        reporter.section(title, "!", red=True)
        for reason in sorted(set(missing)):
            reporter.line(reason.partition(NOTHING_TESTED)[2])
        reporter.section("SKIPPED", "!", red=True)
