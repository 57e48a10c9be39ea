"""What enters the environment's digest, and what does not."""

import sys

import numpy as np
import pytest

from treering.collect.devices import Device, cpu_model
from treering.collect.environment import collect_environment, environment_digest, numeric_packages, packages, variables

A100 = Device("cuda", "NVIDIA A100-SXM4-80GB", "GPU-1", 1, "570", 0)
CPU = Device("cpu", "Some Processor", None, 1, None, 0)


@pytest.fixture(scope="module")
def environment():
    return collect_environment([A100, CPU])


def test_records_versions_and_system(environment):
    assert environment["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert environment["packages"]["numpy"] == np.__version__
    assert environment["packages"]["nvidia-ml-py"]
    assert environment["system"]["threads"] >= 1
    assert environment["device_kinds"] == ["NVIDIA A100-SXM4-80GB"]
    assert environment["devices"][1]["name"] == "Some Processor"
    assert environment["digest"] == environment_digest(environment)
    assert environment["digest"].startswith("sha256:")


def test_the_processor_is_the_kind_where_nothing_else_computes():
    assert collect_environment([CPU])["device_kinds"] == ["Some Processor"]


def test_numeric_packages_are_the_closure_of_what_computes():
    installed = packages()
    numeric = numeric_packages(installed)
    assert numeric["numpy"] == installed["numpy"]
    assert not {"mlflow", "ruff", "pytest"} & set(numeric)
    assert "sympy" in numeric_packages(installed, ["torch"]), "torch requires sympy"
    assert numeric_packages({"numpy": "2"}, ["numpy", "apex"]) == {"numpy": "2"}


def changed(environment, **parts):
    return environment_digest({**environment, **parts})


def test_digest_moves_with_what_touches_numbers(environment):
    others = {
        environment["digest"],
        changed(environment, python={**environment["python"], "version": "3.12.0"}),
        changed(environment, numeric_packages={**environment["numeric_packages"], "torch": "9"}),
        changed(environment, device_kinds=["NVIDIA H100 80GB HBM3"]),
        changed(environment, variables={"OMP_NUM_THREADS": "3"}),
        changed(environment, variables={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}),
        changed(environment, variables={"NCCL_ALGO": "Ring"}),
    }
    assert len(others) == 7


def test_digest_ignores_machine_identity(environment):
    base = changed(environment, variables={})
    places = {
        "CUDA_VISIBLE_DEVICES": "3",
        "CUDA_HOME": "/opt/cuda",
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_IFNAME": "ib0",
        "NCCL_IB_HCA": "mlx5",
        "NCCL_NET_GDR_LEVEL": "PHB",
        "FI_PROVIDER": "efa",
        "TORCHELASTIC_RUN_ID": "7",
        "TORCH_HOME": "/tmp",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "MKL_VERBOSE": "1",
    }
    assert changed(environment, variables=places) == base
    assert changed(environment, variables={}, system={"host": "another"}, devices=[], packages={"ruff": "0"}) == base


def test_only_variables_that_steer_numerics_are_recorded():
    environ = {
        "NCCL_ALGO": "Ring",
        "OMP_NUM_THREADS": "1",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HOME": "/",
        "TORCH_LOGS": "a",
    }
    assert variables(environ) == {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1", "TORCH_LOGS": "a"}


def test_processor_name(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Chip @ 2 GHz\n")
    assert cpu_model(tmp_path / "cpuinfo") == "A Chip @ 2 GHz"
    assert cpu_model(tmp_path / "missing")
