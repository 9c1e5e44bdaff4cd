"""The job that has a provisioner run the managed SPUs."""

from anabranch.common.errors import InvalidSetting
from anabranch.common.provisioning.ports import WantedSpu
from anabranch.controller.cluster.provisioning import Provisioning, wanted_of
from anabranch.controller.domain.stateful_sets import PodOptions
from anabranch.controller.settings import KubernetesOptions
from anabranch.controller.wiring.cluster import Cluster
from anabranch.controller.wiring.surroundings import Surroundings
from anabranch.controller.wiring.topics import Dispatchers


async def provision(around: Surroundings, cluster: Cluster, found: Dispatchers) -> None:
    """Run StatefulSets for the SPU groups until cancelled. Raises InvalidSetting."""
    try:
        from anabranch.controller.adapters import kubernetes_provisioner as adapter
    except ImportError as error:
        raise InvalidSetting(
            "the provisioner for Kubernetes is not installed",
            remedy="install anabranch-controller[kubernetes]",
        ) from error
    options = around.settings.kubernetes
    configuration = adapter.configured(options.api_url, options.account_dir)
    provisioner = adapter.KubernetesProvisioner(configuration, pod_options(options))

    def wanted() -> list[WantedSpu] | None:
        if not (found.spus.store.listed and found.groups.store.listed):
            return None
        return wanted_of(found.spus.store, found.groups.store.objects)

    provisioning = Provisioning(provisioner, wanted, cluster.leadership, around.clock)
    for source in (found.spus.store, found.groups.store, cluster.leadership):
        source.on_change(provisioning.wake)
    try:
        await provisioning.serve()
    finally:
        await provisioner.close()


def pod_options(options: KubernetesOptions) -> PodOptions:
    """The settings as the provisioner needs them."""
    return PodOptions(
        namespace=options.namespace,
        image=options.image,
        cluster=options.cluster,
        domain=options.domain,
        storage_class=options.storage_class,
        claim_size_bytes=options.claim_size_bytes,
        service_account=options.service_account,
        env=tuple(sorted(options.env.items())),
    )
