"""The provisioner for Kubernetes against an API server on the loopback address."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.common.errors import InvalidSetting, Unavailable
from anabranch.common.provisioning.ports import ProvisionedState, WantedSpu
from anabranch.controller.adapters.kubernetes_provisioner import (
    KubernetesProvisioner,
    configured,
)
from anabranch.controller.domain.stateful_sets import PodOptions
from kit.kubernetes_api import KubernetesApi

OPTIONS = PodOptions("streams", "anabranch-segstore:0.1.0")


@asynccontextmanager
async def provisioning(
    options: PodOptions = OPTIONS,
) -> AsyncIterator[tuple[KubernetesApi, KubernetesProvisioner]]:
    api = KubernetesApi("streams")
    async with api.serve() as url:
        provisioner = KubernetesProvisioner(configured(url, Path("/nonexistent")), options)
        try:
            yield api, provisioner
        finally:
            await provisioner.close()


def group(name: str, count: int) -> list[WantedSpu]:
    return [WantedSpu(f"{name}-{i}", name, i, storage_size_bytes=1 << 30) for i in range(count)]


async def test_a_group_grows_shrinks_and_goes() -> None:
    async with provisioning() as (api, provisioner):
        states = await provisioner.reconcile(group("main", 1))
        assert [one.state for one in states] == [ProvisionedState.STARTING]
        assert api.sets.keys() == api.services.keys() == {"main"}

        api.make_ready("main", 1)
        (only,) = await provisioner.reconcile(group("main", 1))
        assert (only.name, only.state) == ("main-0", ProvisionedState.RUNNING)

        await provisioner.reconcile(group("main", 3))
        assert api.sets["main"]["spec"]["replicas"] == 3
        api.make_ready("main", 3)
        states = await provisioner.reconcile(group("main", 2))
        assert api.sets["main"]["spec"]["replicas"] == 2
        states = await provisioner.reconcile(group("main", 2))
        assert [one.name for one in states if one.state is ProvisionedState.STOPPING] == ["main-2"]

        await provisioner.reconcile([])
        assert (api.sets, api.services) == ({}, {})


async def test_nothing_is_written_when_everything_fits() -> None:
    async with provisioning() as (api, provisioner):
        await provisioner.reconcile(group("main", 2))
        api.requests.clear()
        await provisioner.reconcile(group("main", 2))
        assert [method for method, _ in api.requests] == ["GET"]


async def test_a_service_that_was_left_behind_is_no_obstacle() -> None:
    async with provisioning() as (api, provisioner):
        await provisioner.reconcile(group("main", 1))
        del api.sets["main"]
        await provisioner.reconcile(group("main", 1))
        assert api.sets.keys() == {"main"}


async def test_the_stateful_sets_of_another_cluster_are_left_alone() -> None:
    async with provisioning(PodOptions("streams", "image", cluster="other")) as (api, theirs):
        await theirs.reconcile(group("main", 1))
        async with api.serve() as url:
            ours = KubernetesProvisioner(configured(url, Path("/nonexistent")), OPTIONS)
            await ours.reconcile([])
            await ours.close()
        assert api.sets.keys() == {"main"}


@pytest.mark.parametrize("status", [403, 500])
async def test_a_refusal_of_the_server_is_told_and_may_be_retried(status: int) -> None:
    async with provisioning() as (api, provisioner):
        api.refuses = status
        with pytest.raises(Unavailable) as refused:
            await provisioner.reconcile(group("main", 1))
        assert refused.value.fields["status"] == status
        api.refuses = 0
        await provisioner.reconcile(group("main", 1))
        assert api.sets.keys() == {"main"}


async def test_a_server_that_is_gone_is_unavailable() -> None:
    api = KubernetesApi("streams")
    async with api.serve() as url:
        provisioner = KubernetesProvisioner(configured(url, Path("/nonexistent")), OPTIONS)
    with pytest.raises(Unavailable):
        await provisioner.reconcile([])
    await provisioner.close()


async def test_a_token_that_kubernetes_replaces_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    configuration = configured("https://kubernetes.default.svc", tmp_path)
    assert (await configuration.auth_settings())["BearerToken"]["value"] == "Bearer first"
    (tmp_path / "token").write_text("second\n")
    assert (await configuration.auth_settings())["BearerToken"]["value"] == "Bearer second"


async def test_a_token_is_not_sent_without_encryption(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with pytest.raises(InvalidSetting):
        configured("http://127.0.0.1:1", tmp_path)
