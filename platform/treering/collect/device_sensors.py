"""Everything that NVML says of one accelerator, as readings; each call fails alone.

A call that the device or the driver does not support is not made again; any other error is tried again with the next
sample. Counters are read as they are, rates are their differences over time. What changes seldom (ECC, retired pages,
remapped rows) and what blocks (PCIe throughput without counters: 20 ms) is read every tenth sample.

Throttle reasons are NVML's bits: 4 power cap, 8 hardware slowdown, 32 and 64 heat, 128 power brake, and others
(`nvmlClocksEventReasons`).

Tensor activity is the share of cycles in which a tensor pipe issued, of the performance monitors that Hopper and later
devices have (GPM). Of Hopper the FLOPs of a cycle are known, so that activity and clock give measured TFLOP/s, as if
all work were dense bf16: FP8 counts half. Source: NVIDIA H100 whitepaper, 2022: 1024 dense fp16 FMA a cycle and tensor
core, 4 of these and 128 CUDA cores an SM. The product fits the data sheet: 132 · 4096 · 1.83 GHz = 989 TFLOP/s.
"""

import ctypes
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pynvml

from treering.collect.host_sensors import Rates
from treering.collect.nvml import Nvml, Reading

SELDOM: Final = 10
"""Samples between two readings of what changes seldom."""
HOPPER_FLOPS_OF_CORE: Final = 32
"""Dense bf16 FLOPs of the tensor cores of an SM in a cycle, 4096, over its 128 CUDA cores."""
_UNSUPPORTED: Final = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
_GPM: Final = {
    "device/tensor_activity": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "device/sm_activity": pynvml.NVML_GPM_METRIC_SM_UTIL,
}
_ALL_LINKS: Final = 0xFFFFFFFF
_NVLINK: Final = {
    "device/nvlink_sent": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    "device/nvlink_received": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
}
_NVLINK_ERRORS: Final = (
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
)
_RETIRED: Final = (
    pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
    pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
)
_KIB: Final = 1024
_Call = tuple[str, tuple[Any, ...], Callable[[Any], Any]]


def _same(value: Any) -> Any:
    return value


class DeviceSensors:
    """Readings of an accelerator.

    Args:
        nvml: the open library.
        handle: of the device.
        clock: monotonic seconds, for rates.
    """

    def __init__(self, nvml: Nvml, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._handle = handle
        self._rates = Rates(clock)
        self._samples = 0
        self._unsupported: dict[str, str] = {}
        self._seldom: dict[str, Reading] = {}
        self._cores: int | None = None
        self._gpm: _Gpm | None = None
        self._gpm_reason = ""

    def read(self) -> dict[str, Reading]:
        """One reading of every metric: a value, or the reason why there is none."""
        if self._samples == 0:
            self._begin()
        if self._samples % SELDOM == 0:
            self._seldom = self._read_seldom()
        self._samples += 1
        found = {name: self._call(name, *calls) for name, calls in _CALLS.items()}
        found["device/energy"] = self._call(
            "device/energy", ("nvmlDeviceGetTotalEnergyConsumption", (), lambda millijoules: millijoules // 1000)
        )
        found |= {
            name: self._rates.of(name, self._field(name, field, _ALL_LINKS), _KIB) for name, field in _NVLINK.items()
        }
        return {**found, **self._read_gpm(found["device/sm_clock"].value), **self._seldom}

    def _begin(self) -> None:
        architecture = self._nvml.read("nvmlDeviceGetArchitecture", self._handle).value
        if architecture == pynvml.NVML_DEVICE_ARCH_HOPPER:
            self._cores = self._nvml.read("nvmlDeviceGetNumGpuCores", self._handle).value
        support = self._nvml.read(
            "nvmlGpmQueryDeviceSupport", self._handle, pick=lambda found: bool(found.isSupportedDevice)
        )
        if support.value:
            self._gpm = _Gpm(self._nvml, self._handle)
        else:
            self._gpm_reason = support.reason or "nvmlGpmQueryDeviceSupport: the device has no performance monitors"

    def _call(self, name: str, *calls: _Call) -> Reading:
        """The first of some calls that answers; those that are not supported are not made again."""
        reading = Reading(reason=self._unsupported.get(name))
        if reading.reason:
            return reading
        unsupported = True
        for function, arguments, pick in calls:
            reading = self._nvml.read(function, self._handle, *arguments, pick=pick)
            if reading.reason is None:
                return reading
            unsupported = unsupported and reading.code in _UNSUPPORTED
        if unsupported:
            self._unsupported[name] = reading.reason or ""
        return reading

    def _field(self, name: str, field: int, scope: int = 0) -> Reading:
        """A value of NVML's table of fields, which has an error of its own for each."""
        return self._call(
            name, ("nvmlDeviceGetFieldValues", ([(field, scope)],), lambda values: _field_value(values[0]))
        )

    def _read_seldom(self) -> dict[str, Reading]:
        found = {name: self._call(name, *calls) for name, calls in _SELDOM_CALLS.items()}
        found["device/nvlink_errors"] = _sum(self._field(f"nvlink error {field}", field) for field in _NVLINK_ERRORS)
        found["device/retired_pages"] = _sum(
            self._call(f"retired pages {cause}", ("nvmlDeviceGetRetiredPages", (cause,), len)) for cause in _RETIRED
        )
        return found

    def _read_gpm(self, sm_clock: Any) -> dict[str, Reading]:
        names = (*_GPM, "device/tensor_tflops")
        if self._gpm is None:
            return {name: Reading(reason=self._gpm_reason) for name in names}
        found = self._gpm.read()
        activity = found["device/tensor_activity"]
        if activity.value is None:
            return {**found, "device/tensor_tflops": Reading(reason=activity.reason)}
        if self._cores is None or sm_clock is None:
            reason = "the tensor FLOPs of a cycle are known of Hopper devices whose cores and clock NVML tells"
            return {**found, "device/tensor_tflops": Reading(reason=reason)}
        flops = activity.value / 100 * self._cores * HOPPER_FLOPS_OF_CORE * sm_clock * 1e6
        return {**found, "device/tensor_tflops": Reading(round(flops / 1e12, 2))}

    def close(self) -> None:
        """Frees what the performance monitors hold."""
        if self._gpm is not None:
            self._gpm.close()


class _Gpm:
    """The performance monitors of a device: metrics between two samples of them."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._samples: list[Any] = []
        self._taken = 0

    def read(self) -> dict[str, Reading]:
        while len(self._samples) < 2:
            made = self._nvml.read("nvmlGpmSampleAlloc")
            if made.value is None:
                return dict.fromkeys(_GPM, made)
            self._samples.append(made.value)
        taken = self._nvml.read("nvmlGpmSampleGet", self._handle, self._samples[self._taken % 2])
        if taken.reason:
            return dict.fromkeys(_GPM, taken)
        self._taken += 1
        if self._taken < 2:
            return dict.fromkeys(_GPM, Reading())
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(_GPM)
        asked.sample1, asked.sample2 = self._samples[self._taken % 2], self._samples[(self._taken + 1) % 2]
        for place, metric in enumerate(_GPM.values()):
            asked.metrics[place].metricId = metric
        answer = self._nvml.read("nvmlGpmMetricsGet", asked)
        if answer.reason:
            return dict.fromkeys(_GPM, answer)
        return {name: _gpm_value(answer.value.metrics[place]) for place, name in enumerate(_GPM)}

    def close(self) -> None:
        for sample in self._samples:
            self._nvml.read("nvmlGpmSampleFree", sample)


def _sum(readings: Iterable[Reading]) -> Reading:
    """The sum of the counters that answer; the reason of the first one where none does."""
    every = list(readings)
    known = [reading.value for reading in every if reading.value is not None]
    return Reading(sum(known)) if known else every[0]


def _gpm_value(metric: Any) -> Reading:
    if metric.nvmlReturn != pynvml.NVML_SUCCESS:
        return Reading(reason=f"nvmlGpmMetricsGet: {pynvml.NVMLError(metric.nvmlReturn)}")
    return Reading(round(float(metric.value), 2))


def _field_value(field: Any) -> int | float:
    """A field's value by its type.

    Raises:
        NVMLError: the field's own error.
    """
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(field.nvmlReturn)
    found: int | float = getattr(field.value, _FIELD_TYPES[field.valueType])
    return found


_FIELD_TYPES: Final = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _ecc(kind: int) -> _Call:
    return "nvmlDeviceGetTotalEccErrors", (kind, pynvml.NVML_VOLATILE_ECC), _same


def _remapped(pick: Callable[[Any], Any]) -> _Call:
    return "nvmlDeviceGetRemappedRows", (), pick


def _field_call(field: int) -> _Call:
    return "nvmlDeviceGetFieldValues", ([(field, 0)],), lambda values: _field_value(values[0])


_CALLS: Final[Mapping[str, tuple[_Call, ...]]] = {
    "device/utilisation": (("nvmlDeviceGetUtilizationRates", (), lambda rates: int(rates.gpu)),),
    "device/memory_utilisation": (("nvmlDeviceGetUtilizationRates", (), lambda rates: int(rates.memory)),),
    "device/memory_used": (("nvmlDeviceGetMemoryInfo", (), lambda info: int(info.used)),),
    "device/power": (("nvmlDeviceGetPowerUsage", (), _watts),),
    "device/temperature": (("nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,), _same),),
    "device/memory_temperature": (_field_call(pynvml.NVML_FI_DEV_MEMORY_TEMP),),
    "device/sm_clock": (("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_SM,), _same),),
    "device/memory_clock": (("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_MEM,), _same),),
    "device/throttle_reasons": (
        ("nvmlDeviceGetCurrentClocksEventReasons", (), int),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", (), int),
    ),
}
_SELDOM_CALLS: Final[Mapping[str, tuple[_Call, ...]]] = {
    "device/power_limit": (("nvmlDeviceGetEnforcedPowerLimit", (), _watts),),
    "device/ecc_corrected": (_ecc(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),),
    "device/ecc_uncorrected": (_ecc(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),),
    "device/remapped_rows": (_remapped(lambda rows: rows[0] + rows[1]),),
    "device/remapping_pending": (_remapped(lambda rows: rows[2]),),
    "device/remapping_failed": (_remapped(lambda rows: rows[3]),),
    "device/pcie_sent": (
        ("nvmlDeviceGetPcieThroughput", (pynvml.NVML_PCIE_UTIL_TX_BYTES,), lambda kilobytes: kilobytes * 1000),
    ),
    "device/pcie_received": (
        ("nvmlDeviceGetPcieThroughput", (pynvml.NVML_PCIE_UTIL_RX_BYTES,), lambda kilobytes: kilobytes * 1000),
    ),
    "device/pcie_replays": (("nvmlDeviceGetPcieReplayCounter", (), _same),),
}
DEVICE_METRICS: Final = (
    *_CALLS, "device/energy", *_NVLINK, *_GPM, "device/tensor_tflops", *_SELDOM_CALLS, "device/nvlink_errors",
    "device/retired_pages",
)  # fmt: skip
"""What `DeviceSensors` reads; XID errors come as events (`XidEvents`)."""


class XidEvents:
    """XID errors of devices, as the driver reports them.

    Args:
        nvml: the open library.
        handles: of the devices by NVML's index.
    """

    def __init__(self, nvml: Nvml, handles: Mapping[int, Any]) -> None:
        self._nvml = nvml
        self.reasons: dict[int, str] = {}
        made = nvml.read("nvmlEventSetCreate")
        self._set = made.value
        self._index: dict[Any, int] = {}
        for index, handle in handles.items():
            reason = (
                made.reason
                or nvml.read("nvmlDeviceRegisterEvents", handle, pynvml.nvmlEventTypeXidCriticalError, self._set).reason
            )
            if reason:
                self.reasons[index] = reason
            else:
                self._index[_address(handle)] = index

    def read(self) -> list[tuple[int, int]]:
        """Device and code of each error since the last call; at once."""
        found: list[tuple[int, int]] = []
        while self._index and len(found) < _MOST_XIDS:
            event = self._nvml.read("nvmlEventSetWait_v2", self._set, 0).value
            if event is None:  # the wait is over: no event
                break
            index = self._index.get(_address(event.device))
            if index is not None:
                found.append((index, int(event.eventData)))
        return found

    def close(self) -> None:
        """Frees the set of events."""
        if self._set is not None:
            self._nvml.read("nvmlEventSetFree", self._set)


_MOST_XIDS: Final = 100
"""Errors that one sample takes at most: a device may report them without end."""


def _address(handle: Any) -> Any:
    """What is equal for two handles of the same device, which are pointers."""
    return ctypes.cast(handle, ctypes.c_void_p).value
