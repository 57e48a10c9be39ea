"""Prints the energy of a run, and what its sensors reported."""

import time
from collections.abc import Iterator
from typing import Any, Final

from treering.cli.output import console

_MOST_XIDS: Final = 3


def print_energy(page: dict[str, Any]) -> None:
    """Prints energy, cost and CO2e with their doubt, XID errors, and readings that were lost."""
    energy, sensors = page["energy"], page["sensors"]
    if energy is not None and energy["kwh"] is None:
        console.print(f"energy      not known: {'; '.join(energy['doubt'])}")
    elif energy is not None:
        console.print(f"energy      {', '.join(_rates(energy))}", f"  of it     {'; '.join(energy['doubt'])}")
    for xid in sensors["xids"][-_MOST_XIDS:]:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(xid["at"]))
        host = xid["host"] or f"node {xid['node']}"
        console.print(f"XID         {xid['code']} of device {xid['device']} on {host}, {at} UTC")
    if len(sensors["xids"]) > _MOST_XIDS:
        console.print(f"XID         {len(sensors['xids'])} in all")
    if sensors["lost_readings"]:
        console.print(f"telemetry   {sensors['lost_readings']:,} readings lost")


def _rates(energy: dict[str, Any]) -> Iterator[str]:
    yield f"{energy['kwh']:.3g} kWh"
    for name, unit in (
        ("joules_per_token", "J a token"),
        ("tflops_per_watt", "TFLOP/s a watt"),
        ("measured_tflops_per_device", "TFLOP/s a device measured on tensor cores"),
    ):
        if energy[name] is not None:
            yield f"{energy[name]:.3g} {unit}"
    if energy["cost"] is not None:
        yield f"{energy['cost']:,.2f} {energy['currency']}"
    if energy["co2e_kg"] is not None:
        yield f"{energy['co2e_kg']:.3g} kg CO2e"
