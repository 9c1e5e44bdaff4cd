"""Whether the compose file and the Dockerfile fit the services that they deploy.

Both are read as data, so that this needs no container engine: variables against the services'
`Settings`, health checks and times to stop, paths and rules of the image.
"""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from pydantic import ValidationError

from anabranch.cli.commands.tier2 import Place
from anabranch.cli.target import VARIABLES
from anabranch.common.runtime.service import GRACE_SECONDS
from anabranch.common.runtime.settings import ServiceSettings, unknown_variables

UID_MIN = 10_000
_VARIABLE = re.compile(r"^ANABRANCH_([A-Z0-9]+)_")
_DURATION = re.compile(r"^(?:(\d+)m)?(?:(\d+)s)?$")
_PATH = re.compile(r"(?<![\w/.-])(?:\./)?((?:libs|services|deploy|tests|docs)/[\w./${}*-]+)")
_SIZE = re.compile(r"^(\d+)(m|g|MiB|GiB)$")
_LIMITS = ("mem_limit", "cpus", "pids_limit")
GARBAGE_SHARE_MIN, GARBAGE_SHARE_MAX = 0.5, 0.95
VOLUMES_OF_IMAGES = {"redis:": "/data"}
"""Images of others → what they declare as a volume."""
_REACHED_BY_OTHERS = ("nats_url", "nats_monitor_url", "bind", "health_bind")
"""Settings that work on the loopback address everywhere but in a container."""
_BY_JOURNAL = {"jetstream": ("nats_monitor_urls",), "replicated": ("peer_bind",)}
"""Such settings of a store with its logs in this place."""

Compose = Mapping[str, Any]


def settings_of(part: str) -> type[ServiceSettings]:
    """The settings class of a service, as its module `settings` defines it."""
    module = importlib.import_module(f"anabranch.{part}.settings")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, ServiceSettings)
        and value.__module__ == module.__name__
    ]
    assert len(found) == 1, f"{part} has {len(found)} settings classes"
    return found[0]


def parts_of(compose: Compose) -> dict[str, str]:
    """Compose services that are built here → the part that each is built of."""
    built = {name: one["build"] for name, one in lasting(compose).items() if "build" in one}
    return {name: build["args"]["PART"] for name, build in built.items()}


def lasting(compose: Compose) -> dict[str, Any]:
    """The compose services that ``up`` starts: those without a profile."""
    return {name: one for name, one in compose["services"].items() if "profiles" not in one}


def command_variables() -> set[str]:
    """The environment variables that the command reads, of its options for a place."""
    return set(VARIABLES.values()) | {
        variable
        for hint in get_type_hints(Place, include_extras=True).values()
        for parameter in getattr(hint, "__metadata__", ())
        for variable in parameter.env_var or ()
    }


def wrong_variables(compose: Compose, settings: Mapping[str, type[ServiceSettings]]) -> list[str]:
    """Variables that name no setting, belong elsewhere, have a wrong value, or are missing.

    `settings` maps parts to their settings classes.
    """
    parts = parts_of(compose)
    wrong = []
    for name, service in compose["services"].items():
        environment = {key: str(value) for key, value in service.get("environment", {}).items()}
        part = parts.get(name)
        if part is not None:
            wrong += [f"{name}: {text}" for text in _misfits(settings[part], environment)]
        own = command_variables() if service.get("profiles") else set[str]()
        wrong += [
            f"{name}: {variable} belongs to another service"
            for variable in environment.keys() - own
            if (found := _VARIABLE.match(variable)) and found[1].lower() != part
        ]
    return wrong


def _misfits(settings: type[ServiceSettings], environment: Mapping[str, str]) -> Iterator[str]:
    prefix = str(settings.model_config.get("env_prefix"))
    given = {
        key.removeprefix(prefix).lower(): value
        for key, value in environment.items()
        if key.startswith(prefix)
    }
    for variable in unknown_variables(settings, environment):
        yield f"{variable} names no setting"
    reached = (*_REACHED_BY_OTHERS, *_BY_JOURNAL.get(given.get("journal", ""), ()))
    for field, about in settings.model_fields.items():
        variable = prefix + field.upper()
        if field in given:
            continue
        if about.is_required():
            yield f"{variable} is required and missing"
        elif field in reached and "127.0.0.1" in str(about.default):
            yield f"{variable} is missing, and its default reaches nobody outside the container"
    try:
        settings.model_validate(given)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            if one["type"] not in ("missing", "extra_forbidden"):
                yield f"{prefix}{one['loc'][0]}".upper() + f" is wrong: {one['msg']}"


def wrong_lifetimes(compose: Compose) -> list[str]:
    """Services without a health check, or with too little time to stop; waits for no health."""
    parts = parts_of(compose)
    wrong = []
    for name, service in lasting(compose).items():
        if not service.get("healthcheck", {}).get("test"):
            wrong.append(f"{name}: no health check")
        grace = _seconds(str(service.get("stop_grace_period", "")))
        if grace is None:
            wrong.append(f"{name}: no stop_grace_period")
        elif name in parts and grace <= GRACE_SECONDS:
            wrong.append(f"{name}: stop_grace_period must be over {GRACE_SECONDS:g}s, its own")
        waits = service.get("depends_on", {})
        healthy = isinstance(waits, dict) and all(
            one.get("condition") == "service_healthy" for one in waits.values()
        )
        if not healthy:
            wrong.append(f"{name}: depends_on must wait for service_healthy")
    return wrong


def wrong_limits(compose: Compose) -> list[str]:
    """Services without a limit of memory, processors or processes, and a NATS server whose garbage
    may grow to its limit of memory before the server collects it."""
    wrong = []
    for name, service in compose["services"].items():
        wrong += [f"{name}: no {key}" for key in _LIMITS if key not in service]
        aim = str(service.get("environment", {}).get("GOMEMLIMIT", ""))
        if str(service.get("image", "")).startswith("nats:"):
            share = _mebibytes(aim) / max(_mebibytes(str(service.get("mem_limit", ""))), 1)
            if not GARBAGE_SHARE_MIN <= share <= GARBAGE_SHARE_MAX:
                wrong.append(f"{name}: GOMEMLIMIT must be somewhat below mem_limit")
    return wrong


def wrong_leftovers(compose: Compose) -> list[str]:
    """Services that leave an anonymous volume behind with each container."""
    return [
        f"{name}: nothing is mounted on {path}, a volume of its image"
        for name, service in compose["services"].items()
        for image, path in VOLUMES_OF_IMAGES.items()
        if str(service.get("image", "")).startswith(image) and path not in _mounted(service)
    ]


def _mounted(service: Mapping[str, Any]) -> set[str]:
    temporary = {str(one).split(":")[0] for one in service.get("tmpfs", [])}
    return temporary | mounts_of(service).keys()


def wrong_override(base: Compose, override: Compose) -> list[str]:
    """What an override file publishes to others than this machine, or of a port that nobody
    listens on; what it changes of services that the base does not have."""
    wrong = [f"{name}: not in the base" for name in override["services"].keys() - base["services"]]
    for name, service in override["services"].items():
        known = base["services"].get(name, {})
        told = {**known.get("environment", {}), **service.get("environment", {})}
        binds = {_filled(value) for key, value in told.items() if key.endswith("_BIND")}
        listens = {bind.rpartition(":")[2] for bind in binds}
        listens |= {"4222"} if str(known.get("image", "")).startswith("nats:") else set()
        for port in map(_filled, service.get("ports", [])):
            if not port.startswith("127.0.0.1:"):
                wrong.append(f"{name}: port {port} is open to other machines")
            if port.rpartition(":")[2] not in listens:
                wrong.append(f"{name}: nobody listens on the port of {port}")
        networks = {*known.get("networks", []), *service.get("networks", [])}
        if not any(not (base["networks"][one] or {}).get("internal") for one in networks):
            wrong.append(f"{name}: all its networks are internal, so no port is published")
    return wrong


def _filled(text: object) -> str:
    """`text` with the defaults of its variables."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(text))


def wrong_rights(compose: Compose) -> list[str]:
    """Services with rights that they do not need, or open to other machines."""
    wrong = []
    for name, service in compose["services"].items():
        if service.get("cap_drop") != ["ALL"]:
            wrong.append(f"{name}: cap_drop must be [ALL]")
        if "no-new-privileges:true" not in service.get("security_opt", []):
            wrong.append(f"{name}: no-new-privileges is missing")
        if service.get("read_only") is not True:
            wrong.append(f"{name}: read_only is missing")
        wrong += [
            f"{name}: port {port} is open to other machines"
            for port in service.get("ports", [])
            if not str(port).startswith("127.0.0.1:")
        ]
    return wrong


def wrong_redis(compose: Compose) -> list[str]:
    """Services that could use the Redis server of the compose file and are not told where it is."""
    wrong = []
    for name, part in parts_of(compose).items():
        if "redis_url" not in settings_of(part).model_fields:
            continue
        variable = f"ANABRANCH_{part.upper()}_REDIS_URL"
        url = str(compose["services"][name].get("environment", {}).get(variable, ""))
        host = urlsplit(url).hostname
        if host is None or host not in compose["services"]:
            wrong.append(f"{name}: {variable} names no service of the compose file")
    return wrong


def wrong_nats(compose: Compose) -> list[str]:
    """Services that do not know every NATS server of the compose file, and logs with more copies
    than there are servers."""
    servers = {
        name
        for name, one in compose["services"].items()
        if str(one.get("image", "")).startswith("nats:")
    }
    wrong = []
    for name, service in compose["services"].items():
        for variable, value in service.get("environment", {}).items():
            if "_NATS_" in variable and "_URL" in variable:
                hosts = {str(urlsplit(url).hostname) for url in str(value).split(",")}
                if hosts != servers:
                    wrong.append(f"{name}: {variable} names {sorted(hosts)}")
            if variable.endswith("_LOG_REPLICAS") and int(value) > len(servers):
                wrong.append(f"{name}: {variable} is more than the NATS servers")
    return wrong


def wrong_routes(compose: Compose) -> list[str]:
    """NATS servers of several that do not know each other, or that share a name or a volume."""
    servers = {
        name: one
        for name, one in compose["services"].items()
        if str(one.get("image", "")).startswith("nats:")
    }
    if len(servers) < 2:
        return []
    routes = ",".join(f"nats://{name}:6222" for name in servers)
    wrong = []
    for name, one in servers.items():
        told = _options(one["command"])
        if told.get("--routes") != routes or not told.get("--cluster"):
            wrong.append(f"{name}: it must know the routes {routes}")
        if told.get("--name") != name:
            wrong.append(f"{name}: its name must be its own, and stay")
    volumes = [mounts_of(one).get("/data") for one in servers.values()]
    if None in volumes or len(set(volumes)) < len(volumes):
        wrong.append(f"the NATS servers need a volume each: {volumes}")
    return wrong


def _options(command: Sequence[str]) -> dict[str, str]:
    """The options of a command with their values."""
    return {name: value for name, value in pairwise(command) if name.startswith("--")}


def wrong_sharing(compose: Compose) -> list[str]:
    """Services whose tier 2 is not the one of all, or lies on no volume that all of them mount."""
    used: dict[str, tuple[str, str]] = {}
    wrong = []
    for name, part in parts_of(compose).items():
        if "tier2_url" not in settings_of(part).model_fields:
            continue
        service = compose["services"][name]
        url = str(service.get("environment", {}).get(f"ANABRANCH_{part.upper()}_TIER2_URL", ""))
        volume = mounts_of(service).get(url.removeprefix("file://"))
        if not url:
            wrong.append(f"{name}: no tier 2 is named")
        elif volume is None:
            wrong.append(f"{name}: {url} is no volume of its own")
        else:
            used[name] = (url, volume)
    if len(set(used.values())) > 1:
        wrong.append(f"{', '.join(used)}: not the same tier 2")
    return wrong


def mounts_of(service: Mapping[str, Any]) -> dict[str, str]:
    """Paths in the container → the named volumes that are mounted there."""
    pairs = (str(volume).split(":") for volume in service.get("volumes", []))
    return {pair[1]: pair[0] for pair in pairs if not pair[0].startswith((".", "/"))}


def unowned_mounts(compose: Compose, dockerfile: str) -> list[str]:
    """Where parts mount volumes that the image does not give to its user, who could not write."""
    runs = [rest for word, rest in instructions(dockerfile) if word == "RUN"]
    given = {path for run in runs for path in run.partition("chown ")[2].split()[1:]}
    return [
        f"{name}: {path} does not belong to the image's user"
        for name in parts_of(compose)
        for path in mounts_of(compose["services"][name])
        if path not in given
    ]


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """(instruction, arguments) in order, comments dropped and continued lines joined."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    words = [line.strip().partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word.upper(), rest.strip()) for word, _, rest in words]


def wrong_image(dockerfile: str) -> list[str]:
    """What the image that the last stage describes lacks."""
    stages = instructions(dockerfile)
    last = max(number for number, (word, _) in enumerate(stages) if word == "FROM")
    final = dict(stages[last:])
    wrong = [
        f"the last stage has no {word}"
        for word in ("USER", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "LABEL")
        if word not in final
    ]
    user = final.get("USER", "").partition(":")[0]
    if "USER" in final and not (user.isdigit() and int(user) >= UID_MIN):
        wrong.append(f"USER {user} is no number of at least {UID_MIN}")
    if "ENTRYPOINT" in final and not final["ENTRYPOINT"].startswith("["):
        wrong.append("ENTRYPOINT is not in exec form, so the service would get no signals")
    if "python -m anabranch" in dockerfile:
        wrong.append("a service started without -P imports what lies in its data directory")
    if "PYTHONSAFEPATH=1" not in final.get("ENV", ""):
        wrong.append("without PYTHONSAFEPATH children import what lies in their working directory")
    if any(word in ("COPY", "ADD") and "--from=" not in rest for word, rest in stages[last:]):
        wrong.append("the last stage copies from the checkout, with the modes of somebody's umask")
    if "chmod -R a+rX /opt/anabranch" not in dockerfile:
        wrong.append("the environment has the modes of the checkout")
    return wrong


def missing_paths(dockerfile: str, parts: list[str], root: Path) -> list[str]:
    """Paths of the project that the Dockerfile names and that do not exist for one of `parts`."""
    named: set[str] = set()
    for word, rest in instructions(dockerfile):
        named |= {path.rstrip("/") for path in _PATH.findall(rest)}
        if word in ("COPY", "ADD") and "--from=" not in rest:
            named |= set(rest.split()[:-1])
    expanded = {
        re.sub(r"\$\{?PART\}?", part, path).rstrip("/")
        for path in named
        if not path.startswith("-")
        for part in parts
    }
    return sorted(path for path in expanded if not list(root.glob(path)))


def _mebibytes(size: str) -> float:
    found = _SIZE.match(size)
    return 0.0 if found is None else int(found[1]) * (1024 if found[2].lower()[0] == "g" else 1)


def _seconds(duration: str) -> int | None:
    found = _DURATION.match(duration) if duration else None
    return 60 * int(found[1] or 0) + int(found[2] or 0) if found else None
