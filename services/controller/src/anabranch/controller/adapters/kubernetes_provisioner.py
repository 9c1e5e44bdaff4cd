"""A `Provisioner` that runs the stores of SPU groups as StatefulSets of Kubernetes.

`domain/stateful_sets.py` decides; this adapter reads the StatefulSets of the cluster, and creates,
changes and deletes them. It owns nothing: the API server has the state. Every request has a
deadline. An object that another controller has just created or deleted is no error.

Needs the extra `kubernetes` of the distribution.
"""

from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, assert_never

import aiohttp
from kubernetes_asyncio import client
from kubernetes_asyncio.client.exceptions import ApiException

from anabranch.common.errors import InvalidSetting, Unavailable
from anabranch.common.provisioning.ports import Provisioned, ProvisionedState, WantedSpu
from anabranch.controller.domain.stateful_sets import (
    TEMPLATE_ANNOTATION,
    ChangeGroup,
    CreateGroup,
    DeleteGroup,
    FoundSet,
    PodOptions,
    Step,
    next_steps,
)

CALL_S_MAX = 10.0
MERGE_PATCH = "application/merge-patch+json"
CONFLICT, NOT_FOUND = 409, 404
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts the credentials of a pod's service account."""


def configured(api_url: str, account: Path = ACCOUNT) -> client.Configuration:
    """The way to the API server, with the credentials in the directory `account`, if it exists.

    Raises InvalidSetting.
    """
    configuration = client.Configuration(host=api_url.rstrip("/"))
    certificate, token = account / "ca.crt", account / "token"
    if certificate.exists():
        configuration.ssl_ca_cert = str(certificate)
    if not token.exists():
        return configuration
    if not api_url.startswith("https:"):
        raise InvalidSetting(
            "the service account's token would be sent without encryption",
            remedy="name the API server by an https URL",
            api_url=api_url,
        )

    def read_again(changed: client.Configuration) -> None:
        # Kubernetes replaces the token about every hour.
        changed.api_key["BearerToken"] = token.read_text().strip()

    configuration.api_key_prefix["BearerToken"] = "Bearer"
    configuration.refresh_api_key_hook = read_again
    read_again(configuration)  # without a first token, the library never asks for another one
    return configuration


class KubernetesProvisioner:
    """See `Provisioner`. `close` ends its connections."""

    def __init__(self, configuration: client.Configuration, options: PodOptions) -> None:
        self._options = options
        self._api = client.ApiClient(configuration)
        # The library accepts bodies as dicts, and content types, which its types do not say.
        self._apps: Any = client.AppsV1Api(self._api)
        self._core: Any = client.CoreV1Api(self._api)

    async def close(self) -> None:
        """Close the connections to the API server."""
        await self._api.close()

    async def reconcile(self, wanted: Sequence[WantedSpu]) -> Sequence[Provisioned]:
        """See `Provisioner.reconcile`. Raises Unavailable."""
        found = await self._stateful_sets()
        for step in next_steps(wanted, found, self._options):
            await self._perform(step)
        return provisioned(wanted, found)

    async def _stateful_sets(self) -> list[FoundSet]:
        answer = await _asked(
            self._apps.list_namespaced_stateful_set(
                self._options.namespace,
                label_selector=self._options.selector,
                _request_timeout=CALL_S_MAX,
            )
        )
        return [_found(one) for one in answer.items]

    async def _perform(self, step: Step) -> None:
        namespace = self._options.namespace
        match step:
            case CreateGroup(service=service, stateful_set=stateful_set):
                await _asked(
                    self._core.create_namespaced_service(
                        namespace, service, _request_timeout=CALL_S_MAX
                    ),
                    CONFLICT,
                )
                await _asked(
                    self._apps.create_namespaced_stateful_set(
                        namespace, stateful_set, _request_timeout=CALL_S_MAX
                    ),
                    CONFLICT,
                )
            case ChangeGroup(group=group, patch=patch):
                await _asked(
                    self._apps.patch_namespaced_stateful_set(
                        group,
                        namespace,
                        patch,
                        _content_type=MERGE_PATCH,
                        _request_timeout=CALL_S_MAX,
                    ),
                    NOT_FOUND,
                )
            case DeleteGroup(group=group):
                await _asked(
                    self._apps.delete_namespaced_stateful_set(
                        group, namespace, _request_timeout=CALL_S_MAX
                    ),
                    NOT_FOUND,
                )
                await _asked(
                    self._core.delete_namespaced_service(
                        group, namespace, _request_timeout=CALL_S_MAX
                    ),
                    NOT_FOUND,
                )
            case _:
                assert_never(step)


async def _asked(call: Awaitable[Any], harmless: int = 0) -> Any:
    """The answer; None if the server refuses with the status `harmless`. Raises Unavailable."""
    try:
        return await call
    except ApiException as error:
        if error.status == harmless:
            return None
        raise Unavailable(
            "the API server of Kubernetes refuses a request",
            remedy="check the rights of the controller's service account: docs/kubernetes.md",
            status=error.status,
            reason=error.reason,
        ) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unavailable(
            "the API server of Kubernetes does not answer", cause=repr(error)
        ) from error


def _found(one: Any) -> FoundSet:
    status = one.status
    annotations = one.metadata.annotations or {}
    return FoundSet(
        one.metadata.name,
        one.spec.replicas or 0,
        annotations.get(TEMPLATE_ANNOTATION, ""),
        (status.replicas or 0) if status else 0,
        (status.ready_replicas or 0) if status else 0,
    )


def provisioned(wanted: Sequence[WantedSpu], found: Sequence[FoundSet]) -> list[Provisioned]:
    """The pods, as far as StatefulSets tell: the number of ready ones, not which they are."""
    sets = {one.name: one for one in found}
    states: list[Provisioned] = []
    for spu in sorted(wanted, key=lambda spu: spu.name):
        one = sets.get(spu.group)
        ready = one is not None and one.ready >= one.replicas > spu.index
        told = f"{one.ready} of {one.replicas} pods are ready" if one else "no pods exist yet"
        state = ProvisionedState.RUNNING if ready else ProvisionedState.STARTING
        states.append(Provisioned(spu.name, state, "" if ready else told))
    for one in found:
        names = {spu.name for spu in wanted}
        for index in range(one.current):
            if f"{one.name}-{index}" not in names:
                name = f"{one.name}-{index}"
                states.append(Provisioned(name, ProvisionedState.STOPPING))
    return states
