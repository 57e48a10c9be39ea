"""What is read of a device, through recorded answers of NVML: values with units, refusals, rates, XID errors."""

import json
from types import SimpleNamespace

import pynvml
import pytest
from recorded_nvml import library, recording

from treering.collect.device_sensors import DEVICE_METRICS, SELDOM, DeviceSensors, XidEvents
from treering.collect.nvml import Nvml, open_nvml
from treering.runlog.metric_catalog import METRICS


@pytest.fixture
def clock():
    """Seconds that a test moves."""
    return SimpleNamespace(now=100.0)


def opened(name, clock, monkeypatch, **replaced):
    monkeypatch.setenv("RECORDED_NVML", str(recording(name)))
    answers = library(name)
    for function, answer in replaced.items():
        setattr(answers, function, answer)
    nvml, reason = open_nvml(answers)
    assert reason is None
    return nvml, DeviceSensors(nvml, nvml.handles()[0], lambda: clock.now), answers


def second_reading(name, clock, monkeypatch, **replaced):
    """The second one: rates and performance monitors need two samples."""
    _nvml, sensors, _answers = opened(name, clock, monkeypatch, **replaced)
    sensors.read()
    clock.now += 2.0
    return sensors.read()


def values(readings):
    return {name.removeprefix("device/"): reading.value for name, reading in readings.items()}


def test_the_recordings_say_that_no_gpu_made_them():
    for name in ("a100", "h100", "v100"):
        assert "NOT recorded on a GPU" in json.loads(recording(name).read_text())["about"]


def test_every_metric_of_an_a100_has_its_unit(clock, monkeypatch):
    readings = second_reading("a100", clock, monkeypatch)
    assert values(readings) == {
        "utilisation": 97,
        "memory_utilisation": 40,
        "memory_used": 1_073_741_824,
        "power": 312.5,
        "temperature": 61,
        "memory_temperature": 74,
        "sm_clock": 1410,
        "memory_clock": 1593,
        "throttle_reasons": pynvml.nvmlClocksEventReasonSwPowerCap,
        "energy": 5_000_312,
        "nvlink_sent": 102_400 * 1024 // 2,
        "nvlink_received": 51_200 * 1024 // 2,
        "tensor_activity": None,
        "sm_activity": None,
        "tensor_tflops": None,
        "power_limit": 400.0,
        "ecc_corrected": 2,
        "ecc_uncorrected": 0,
        "retired_pages": None,
        "remapped_rows": 1,
        "remapping_pending": 0,
        "remapping_failed": 0,
        "nvlink_errors": 4,
        "pcie_sent": 1_200_000,
        "pcie_received": 3_400_000,
        "pcie_replays": 0,
    }
    assert readings["device/retired_pages"].reason == "nvmlDeviceGetRetiredPages: Not Supported"
    assert readings["device/tensor_activity"].reason.endswith("the device has no performance monitors")
    assert set(readings) == set(DEVICE_METRICS)
    assert set(DEVICE_METRICS) | {"device/xid"} <= METRICS.keys()


def test_hopper_tells_tensor_activity_and_so_measured_flops(clock, monkeypatch):
    readings = values(second_reading("h100", clock, monkeypatch))
    assert (readings["tensor_activity"], readings["sm_activity"]) == (51.25, 93.5)
    # 132 SMs of 4096 dense bf16 FLOPs a cycle
    assert readings["tensor_tflops"] == round(0.5125 * 132 * 4096 * 1755e6 / 1e12, 2)
    assert round(132 * 4096 * 1830e6 / 1e12) == 989, "the data sheet's dense peak at the boost clock"
    assert readings["nvlink_errors"] == 0, "two of its four counters are not supported"


def test_an_old_device_answers_by_older_functions_or_not_at_all(clock, monkeypatch):
    readings = second_reading("v100", clock, monkeypatch)
    assert readings["device/throttle_reasons"].value == pynvml.nvmlClocksEventReasonHwSlowdown
    assert readings["device/retired_pages"].value == 3
    assert {name: readings[f"device/{name}"].reason for name in ("energy", "nvlink_sent", "remapped_rows")} == {
        "energy": "nvmlDeviceGetTotalEnergyConsumption: Not Supported",
        "nvlink_sent": "nvmlDeviceGetFieldValues: Not Supported",
        "remapped_rows": "nvmlDeviceGetRemappedRows: Not Supported",
    }


def test_what_is_not_supported_is_asked_once_and_other_errors_again(clock, monkeypatch):
    asked = []

    def refusing(code):
        def function(_handle, *_arguments):
            asked.append(code)
            raise pynvml.NVMLError(code)

        return function

    _nvml, sensors, answers = opened(
        "a100",
        clock,
        monkeypatch,
        nvmlDeviceGetTotalEnergyConsumption=refusing(pynvml.NVML_ERROR_NOT_SUPPORTED),
        nvmlDeviceGetPowerUsage=refusing(pynvml.NVML_ERROR_GPU_IS_LOST),
    )
    healthy = answers.nvmlDeviceGetUtilizationRates
    first, second = sensors.read(), sensors.read()
    assert sorted(asked) == [pynvml.NVML_ERROR_NOT_SUPPORTED, *[pynvml.NVML_ERROR_GPU_IS_LOST] * 2]
    assert first["device/energy"].reason == second["device/energy"].reason != ""
    assert second["device/power"].reason == "nvmlDeviceGetPowerUsage: GPU is lost"
    assert second["device/utilisation"].value == 97
    answers.nvmlDeviceGetPowerUsage = lambda _handle: 100_000
    assert sensors.read()["device/power"].value == 100.0, "a device that comes back is read again"
    assert healthy is answers.nvmlDeviceGetUtilizationRates


def test_an_error_that_is_none_of_nvmls_is_a_reason_too(clock, monkeypatch):
    def broken(_handle):
        raise OSError("the driver is gone")

    _nvml, sensors, _answers = opened("a100", clock, monkeypatch, nvmlDeviceGetMemoryInfo=broken)
    assert sensors.read()["device/memory_used"].reason == "nvmlDeviceGetMemoryInfo: the driver is gone"


def test_what_blocks_or_seldom_changes_is_read_every_tenth_sample(clock, monkeypatch):
    asked = []

    def counted(_handle, _direction):
        asked.append(1)
        return 5

    _nvml, sensors, _answers = opened("a100", clock, monkeypatch, nvmlDeviceGetPcieThroughput=counted)
    found = {sensors.read()["device/pcie_sent"].value for _ in range(2 * SELDOM)}
    assert (found, len(asked)) == ({5000}, 2 * 2)


def test_a_rate_needs_two_readings_and_a_counter_that_grows(clock, monkeypatch):
    _nvml, sensors, answers = opened("a100", clock, monkeypatch)
    assert values(sensors.read())["nvlink_sent"] is None
    counters = iter([10, 20, 5, 6])

    def fields(_handle, asked):
        field = pynvml.c_nvmlFieldValue_t(valueType=pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
        field.value.ullVal = next(counters) if asked[0][0] == pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX else 0
        return [field]

    answers.nvmlDeviceGetFieldValues = fields
    found = []
    for _ in range(4):
        clock.now += 1.0
        found.append(values(sensors.read())["nvlink_sent"])
    assert found == [None, 10 * 1024, None, 1024], "a counter that begins again is no rate"


def test_xid_errors_name_their_device(clock, monkeypatch):
    nvml, _sensors, _answers = opened("a100", clock, monkeypatch)
    events = XidEvents(nvml, dict(enumerate(nvml.handles())))
    assert events.read() == [(1, 79)]
    assert events.read() == []
    assert events.reasons == {}


def test_xid_errors_that_cannot_be_had_have_a_reason():
    def refuse(*_arguments):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    nvml = Nvml(SimpleNamespace(nvmlEventSetCreate=lambda: 1, nvmlDeviceRegisterEvents=refuse))
    events = XidEvents(nvml, {0: object()})
    assert events.reasons == {0: "nvmlDeviceRegisterEvents: Not Supported"}
    assert events.read() == []
