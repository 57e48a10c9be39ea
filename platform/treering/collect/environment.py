"""The software and hardware kind that an attempt runs on, and the digest of the part that can move numbers.

The rule of the digest: Python's version, the packages that training imports (the closure of `NUMERIC_ROOTS`), the
kinds of device that compute, and the variables that choose algorithms. Kept out, since they do not touch numbers: host
name, kernel, driver, paths, visible-device lists, log levels, network interfaces, and packages that training never
imports (installing a linter must not end a run).

Recorded is everything that begins with `NCCL_`, `TORCH`, `CUDA_`, `CUBLAS`, `OMP_`, `GLOO_`, `PYTORCH_`, `TRITON_` and
the like. Of these `NCCL_IB_*`, `NCCL_NET*`, `NCCL_SOCKET_*`, `NCCL_DEBUG*`, `*_IFNAME`, `TORCH_NCCL_*`, `FI_*`,
`UCX_*`, places and logs are in no digest.
"""

import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any, Final

import psutil

from treering.collect.devices import Device, cpu_model
from treering.config.canonical import digest_json
from treering.redact import redact_variable

NUMERIC_ROOTS: Final = ("torch", "deepspeed", "megatron-core", "transformer-engine", "flash-attn", "apex", "numpy")
"""Distributions that compute; an absent one counts for nothing."""

VARIABLE_PREFIXES: Final = (
    "ATEN_", "CUBLAS", "CUDA_", "CUDNN_", "DNNL_", "DS_", "FI_", "GLOO_", "KMP_", "MKL_", "NCCL_",
    "NVIDIA_TF32_OVERRIDE", "NVTE_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHONHASHSEED", "PYTORCH_", "RDMAV_", "TORCH",
    "TRITON_", "UCX_",
)  # fmt: skip
"""Environment variables that steer numerics or communication; nothing else is recorded."""

_PLACES: Final = re.compile(
    r"CUDA_(VISIBLE_DEVICES|HOME|PATH|ROOT|CACHE_PATH|VERSION|DEVICE_ORDER|MODULE_LOADING)|TORCH_(HOME|EXTENSIONS_DIR|LOGS)"
    r"|TORCH_(CPP_LOG_LEVEL|SHOW_CPP_STACKTRACES|DISTRIBUTED_DEBUG|NCCL_\w+)|TORCHELASTIC_\w+"
    r"|NCCL_(DEBUG\w*|HOSTID|\w*IFNAME|VERSION\w*|(IB|NET|OOB|SOCKET)_\w+|NET|NSOCKS_PERTHREAD|CROSS_NIC|TOPO_FILE)"
    r"|(FI|RDMAV|UCX)_\w+|GLOO_SOCKET_IFNAME|\w+_VERBOSE|DS_(ENV_FILE|SKIP_\w+)|(TORCHINDUCTOR|TRITON)_CACHE_DIR"
)
"""Variables that name places, switch logs or choose a network: recorded, not digested. What chooses how numbers are
added up, as NCCL_ALGO and NCCL_PROTO do, is digested, and so is whatever is not known to be harmless."""

_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def packages() -> dict[str, str]:
    """Version of every installed distribution, by normalised name (PEP 503)."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            # The first on the path is the one that is imported.
            found.setdefault(_normalise(name), distribution.version)
    return dict(sorted(found.items()))


def numeric_packages(installed: Mapping[str, str], roots: Iterable[str] = NUMERIC_ROOTS) -> dict[str, str]:
    """The installed distributions that `roots` require, directly or not, without optional extras."""
    found: dict[str, str] = {}
    pending = [_normalise(root) for root in roots]
    while pending:
        name = pending.pop()
        if name in found or name not in installed:
            continue
        found[name] = installed[name]
        for requirement in metadata.requires(name) or ():
            match = _REQUIREMENT.match(requirement)
            if match and "extra ==" not in requirement:
                pending.append(_normalise(match.group(1)))
    return dict(sorted(found.items()))


def variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of `VARIABLE_PREFIXES` that are set."""
    source = os.environ if environ is None else environ
    return {name: source[name] for name in sorted(source) if is_recorded(name)}


def is_recorded(name: str) -> bool:
    """Whether a variable of that name is recorded where it is set."""
    return name.startswith(VARIABLE_PREFIXES)


def numeric_variables(recorded: Mapping[str, str]) -> dict[str, str]:
    """Of recorded variables those that count in the digest: a place, a log or a network moves no number."""
    return {name: value for name, value in recorded.items() if not _PLACES.fullmatch(name)}


def collect_environment(devices: Sequence[Device]) -> dict[str, Any]:
    """Everything that an attempt's header records about where it runs, as JSON values.

    Args:
        devices: the devices of this node, from `treering.collect.devices`.

    Returns:
        Keys `python`, `packages`, `numeric_packages`, `system`, `devices`, `device_kinds`, `variables`, `digest`.
    """
    installed = packages()
    environment: dict[str, Any] = {
        "python": {"implementation": platform.python_implementation(), "version": platform.python_version()},
        "packages": installed,
        "numeric_packages": numeric_packages(installed),
        "system": {
            "os": _os_name(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "libc": " ".join(platform.libc_ver()).strip(),
            "host": platform.node(),
            "cpu": cpu_model(),
            "cores": psutil.cpu_count(logical=False),
            "threads": psutil.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "executable": sys.executable,
        },
        "devices": [device.to_dict() for device in devices],
        "device_kinds": device_kinds(devices),
        "variables": {name: redact_variable(name, value) for name, value in variables().items()},
    }
    environment["digest"] = environment_digest(environment)
    return environment


def device_kinds(devices: Sequence[Device]) -> list[str]:
    """Names of the kinds of device that compute: the accelerators, or the processor where there is none."""
    accelerators = sorted({device.name for device in devices if device.kind != "cpu"})
    return accelerators or sorted({device.name for device in devices})


def environment_digest(environment: Mapping[str, Any]) -> str:
    """Digest of the part of a recorded environment that can move numbers (the rule is at the top of this file)."""
    return digest_json(
        {
            "python": environment["python"],
            "packages": environment["numeric_packages"],
            "device_kinds": environment["device_kinds"],
            "variables": numeric_variables(environment["variables"]),
        }
    )


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()
