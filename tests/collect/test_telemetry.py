"""The sampler with real psutil, and NVML's function table injected where no GPU is: values, refusals, drops."""

import json
import threading
import time
from types import SimpleNamespace

import pynvml
import pytest

from treering.collect.devices import collect_devices, visible_index
from treering.collect.nvml import Nvml, open_nvml
from treering.collect.telemetry import (
    DEVICE_METRICS,
    HOST_METRICS,
    DeviceSensors,
    HostSensors,
    StepReadings,
    TelemetrySampler,
    rank_sensors,
)
from treering.runlog.metric_catalog import METRICS
from treering.runlog.telemetry import STEP_METRICS


def refuse(code):
    """An NVML function of a driver that refuses, with the error class that the real library raises."""

    def function(*_arguments):
        raise pynvml.NVMLError(code)

    return function


def table(**replaced):
    """NVML's function table of a node with two A100s, as nvidia-ml-py returns the values."""
    functions = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "570.86.15",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle-{index}",
        "nvmlDeviceGetName": lambda _handle: "NVIDIA A100-SXM4-80GB",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetMemoryInfo": lambda _handle: SimpleNamespace(total=85_899_345_920, used=1_073_741_824, free=0),
        "nvmlDeviceGetUtilizationRates": lambda _handle: SimpleNamespace(gpu=97, memory=40),
        "nvmlDeviceGetPowerUsage": lambda _handle: 312_500,
        "nvmlDeviceGetTemperature": lambda _handle, sensor: {0: 61}[sensor],
        "nvmlDeviceGetClockInfo": lambda _handle, kind: {1: 1410, 2: 1593}[kind],
    }
    return SimpleNamespace(**{**functions, **replaced})


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_host_values_are_measured(tmp_path):
    path = tmp_path / "telemetry" / "rank-3.jsonl"
    with TelemetrySampler(path, rank=3, interval_s=0.02) as sampler:
        deadline = time.monotonic() + 60
        while (not path.exists() or len(lines(path)) < 3) and time.monotonic() < deadline:
            sum(range(10_000))
    rows = lines(path)
    assert len(rows) >= 3
    assert sampler.dropped == 0
    assert {row["rank"] for row in rows} == {3}
    assert all(abs(row["time"] - time.time()) < 60 for row in rows)
    last = rows[-1]["values"]
    assert set(last) == {*HOST_METRICS, "device"}
    assert 10e6 < last["process/rss"] < last["host/memory_used"] * 10
    assert max(row["values"]["process/cpu_utilisation"] for row in rows) > 0


def test_the_first_reading_measures_an_interval_of_its_own_thread(tmp_path):
    calls = []

    class Watched(HostSensors):
        def begin(self):
            calls.append(("begin", threading.get_ident()))

        def read(self):
            calls.append(("read", threading.get_ident()))
            return {}

    with TelemetrySampler(tmp_path / "rank-0.jsonl", rank=0, interval_s=0.05, sensors=[Watched()]) as sampler:
        time.sleep(0.15)
        sampler_thread = sampler._thread.ident
    made, first, second = calls[:3]
    assert made == ("begin", threading.get_ident())
    assert (first, second) == (("begin", sampler_thread), ("read", sampler_thread))


def test_without_a_gpu_the_reason_stands_once(tmp_path):
    sampler = TelemetrySampler(tmp_path / "rank-0.jsonl", rank=0, sensors=[DeviceSensors(None)])
    sampler.sample()
    sampler.sample()
    first, second = lines(tmp_path / "rank-0.jsonl")
    assert first["reasons"] == {"device": "this rank computes on the processor"}
    assert first["values"] == second["values"] == {"device": None}
    assert "reasons" not in second


def test_every_device_metric_has_its_unit():
    readings = DeviceSensors(1, table()).read()
    assert {name: reading.value for name, reading in readings.items()} == {
        "device/utilisation": 97,
        "device/memory_used": 1_073_741_824,
        "device/power": 312.5,
        "device/temperature": 61,
        "device/sm_clock": 1410,
        "device/memory_clock": 1593,
    }
    assert tuple(readings) == DEVICE_METRICS
    assert {*HOST_METRICS, *DEVICE_METRICS} <= METRICS.keys()


def test_the_constants_are_nvmls_own():
    assert (pynvml.NVML_TEMPERATURE_GPU, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM) == (0, 1, 2)
    assert all(hasattr(pynvml, name) for name in vars(table()))


def test_an_unsupported_metric_is_null_with_its_reason(tmp_path):
    library = table(
        nvmlDeviceGetPowerUsage=refuse(pynvml.NVML_ERROR_NOT_SUPPORTED),
        nvmlDeviceGetTemperature=refuse(pynvml.NVML_ERROR_NO_PERMISSION),
    )
    sampler = TelemetrySampler(tmp_path / "rank-0.jsonl", rank=0, sensors=rank_sensors(0, library))
    sampler.sample()
    sampler.sample()
    first, second = lines(tmp_path / "rank-0.jsonl")
    assert first["reasons"] == {
        "device/power": "nvmlDeviceGetPowerUsage: Not Supported",
        "device/temperature": "nvmlDeviceGetTemperature: Insufficient Permissions",
    }
    assert first["values"]["device/power"] is None
    assert first["values"]["device/utilisation"] == 97
    assert "reasons" not in second
    assert sampler.dropped == 0


def test_a_lost_device_changes_the_reason_and_recovers(tmp_path):
    library = table()
    sampler = TelemetrySampler(tmp_path / "rank-0.jsonl", rank=0, sensors=[DeviceSensors(0, library)])
    sampler.sample()
    healthy, library.nvmlDeviceGetUtilizationRates = (
        library.nvmlDeviceGetUtilizationRates,
        refuse(pynvml.NVML_ERROR_GPU_IS_LOST),
    )
    sampler.sample()
    library.nvmlDeviceGetUtilizationRates = healthy
    sampler.sample()
    before, lost, after = lines(tmp_path / "rank-0.jsonl")
    assert "reasons" not in before
    assert lost["reasons"] == {"device/utilisation": "nvmlDeviceGetUtilizationRates: GPU is lost"}
    assert (lost["values"]["device/utilisation"], after["values"]["device/utilisation"]) == (None, 97)


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        ({"nvmlInit": refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)}, "nvmlInit: Driver Not Loaded"),
        ({"nvmlInit": refuse(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)}, "nvmlInit: NVML Shared Library Not Found"),
        ({"nvmlDeviceGetCount": lambda: 0}, "nvmlDeviceGetCount: no device"),
    ],
)
def test_a_node_without_driver_or_device_gives_the_reason(replaced, reason):
    nvml, found = open_nvml(table(**replaced))
    assert nvml is None
    assert found == reason
    assert DeviceSensors(0, table(**replaced)).read()["device"].reason == reason


def test_the_real_library_answers_or_gives_its_reason():
    nvml, reason = open_nvml()
    assert (nvml is None) == bool(reason)
    readings = DeviceSensors(0).read()
    if nvml is None:
        assert readings["device"].reason == reason
        return
    device = collect_devices(nvml)[0]
    nvml.close()
    assert device.kind == "cuda"
    assert device.driver
    assert device.uuid.startswith(("GPU-", "MIG-"))
    assert tuple(readings) == DEVICE_METRICS
    assert all((reading.value is None) == bool(reading.reason) for reading in readings.values())
    plausible = {
        "device/utilisation": (0, 100),
        "device/memory_used": (0, device.memory_bytes),
        "device/power": (5, 1500),
        "device/temperature": (5, 110),
        "device/sm_clock": (50, 4000),
        "device/memory_clock": (50, 12_000),
    }
    for name, (low, high) in plausible.items():
        value = readings[name].value
        assert value is None or low <= value <= high, name


def test_a_full_disk_is_counted_and_shown_later(tmp_path):
    path = tmp_path / "rank-0.jsonl"
    path.mkdir()
    sampler = TelemetrySampler(path, rank=0)
    sampler.sample()
    sampler.sample()
    assert sampler.dropped == 2
    path.rmdir()
    sampler.sample()
    sampler.sample()
    first, second = lines(path)
    assert first["dropped"] == 2
    assert "device" in first["reasons"], "what was lost with the dropped lines is said again"
    assert "dropped" not in second


def test_a_sensor_that_hangs_does_not_hold_up_the_end(tmp_path):
    asked, answers = threading.Event(), threading.Event()

    def hang(_handle):
        asked.set()
        answers.wait(20)

    library = table(nvmlDeviceGetUtilizationRates=hang)
    sampler = TelemetrySampler(tmp_path / "rank-0.jsonl", rank=0, interval_s=0.01, sensors=[DeviceSensors(0, library)])
    sampler.start()
    assert asked.wait(60)
    sampler.stop()
    assert sampler._thread.is_alive(), "the sensor has not answered yet"
    answers.set()
    sampler._thread.join(60)
    assert not sampler._thread.is_alive()


def test_devices_of_a_node():
    devices = collect_devices(Nvml(table()))
    assert [(d.kind, d.name, d.uuid, d.driver, d.index) for d in devices[:2]] == [
        ("cuda", "NVIDIA A100-SXM4-80GB", "GPU-handle-0", "570.86.15", 0),
        ("cuda", "NVIDIA A100-SXM4-80GB", "GPU-handle-1", "570.86.15", 1),
    ]
    assert devices[0].memory_bytes == 85_899_345_920
    (cpu,) = collect_devices(None)
    assert (cpu.kind, cpu.uuid, devices[2]) == ("cpu", None, cpu)
    assert cpu.name
    assert cpu.memory_bytes > 1e9


@pytest.mark.parametrize(
    ("visible", "local_rank", "index"),
    [(None, 1, 1), ("1,0", 0, 1), ("1", 1, None), ("GPU-handle-1", 0, 1), ("", 0, None), ("MIG-1", 0, None)],
)
def test_visible_device_of_a_rank(visible, local_rank, index):
    assert visible_index(collect_devices(Nvml(table())), local_rank, visible) == index


def test_steps_are_averaged_between_two_samples(tmp_path):
    steps = StepReadings()
    sampler = TelemetrySampler(tmp_path / "rank-0.jsonl", rank=0, sensors=[steps])
    sampler.sample()
    for seconds in (1.0, 2.0):
        steps.add(dict.fromkeys(STEP_METRICS, seconds))
    sampler.sample()
    sampler.sample()
    assert [row["values"] for row in lines(tmp_path / "rank-0.jsonl")] == [{}, dict.fromkeys(STEP_METRICS, 1.5), {}]
    assert set(STEP_METRICS) <= METRICS.keys()
