"""The stores that every test of table segments runs on."""

from collections.abc import AsyncIterator

import pytest

from kit.served_table import PROVIDERS, Provider, ServedTable


@pytest.fixture(params=sorted(PROVIDERS))
def provider(request: pytest.FixtureRequest) -> Provider:
    return PROVIDERS[request.param]


@pytest.fixture
async def table(provider: Provider) -> AsyncIterator[ServedTable]:
    async with provider() as served:
        yield served
