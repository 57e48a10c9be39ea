"""NVML is opened or gives its reason; the devices of a node, and which of them a rank sees."""

import pynvml
import pytest
from recorded_nvml import library, recording

from treering.collect.devices import collect_devices, visible_index, visible_indexes
from treering.collect.nvml import Nvml, open_nvml


def refuse(code):
    """An NVML function of a driver that refuses, with the error class that the real library raises."""

    def function(*_arguments):
        raise pynvml.NVMLError(code)

    return function


@pytest.fixture
def answers(monkeypatch):
    """NVML of a node with two A100s."""
    monkeypatch.setenv("RECORDED_NVML", str(recording("a100")))
    answering = library("a100")
    answering.nvmlInit()
    return answering


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        ({"nvmlInit": refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)}, "nvmlInit: Driver Not Loaded"),
        ({"nvmlInit": refuse(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)}, "nvmlInit: NVML Shared Library Not Found"),
        ({"nvmlDeviceGetCount": lambda: 0}, "nvmlDeviceGetCount: no device"),
    ],
)
def test_a_node_without_driver_or_device_gives_the_reason(answers, replaced, reason):
    for name, function in replaced.items():
        setattr(answers, name, function)
    assert open_nvml(answers) == (None, reason)


def test_the_real_library_answers_or_gives_its_reason():
    nvml, reason = open_nvml()
    assert (nvml is None) == bool(reason)
    if nvml is not None:
        device = collect_devices(nvml)[0]
        nvml.close()
        assert device.kind == "cuda"
        assert device.uuid.startswith(("GPU-", "MIG-"))


def test_devices_of_a_node(answers):
    devices = collect_devices(Nvml(answers))
    assert [(d.kind, d.name, d.uuid, d.driver, d.index) for d in devices[:2]] == [
        ("cuda", "NVIDIA A100-SXM4-80GB", "GPU-a100-0", "570.86.15", 0),
        ("cuda", "NVIDIA A100-SXM4-80GB", "GPU-a100-1", "570.86.15", 1),
    ]
    assert devices[0].memory_bytes == 85_899_345_920
    (cpu,) = collect_devices(None)
    assert (cpu.kind, cpu.uuid, devices[2]) == ("cpu", None, cpu)
    assert cpu.name
    assert cpu.memory_bytes > 1e9


@pytest.mark.parametrize(
    ("visible", "local_rank", "index"),
    [(None, 1, 1), ("1,0", 0, 1), ("1", 1, None), ("GPU-a100-1", 0, 1), ("", 0, None), ("MIG-1", 0, None)],
)
def test_visible_device_of_a_rank(answers, visible, local_rank, index):
    assert visible_index(collect_devices(Nvml(answers)), local_rank, visible) == index


def test_all_devices_that_a_process_sees(answers):
    devices = collect_devices(Nvml(answers))
    assert [visible_indexes(devices, visible) for visible in (None, "1,0", "GPU-a100-1", "")] == [
        [0, 1],
        [1, 0],
        [1],
        [],
    ]
