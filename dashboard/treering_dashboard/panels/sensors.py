"""What the sensors of a run reported: readings over the steps, energy and cost, errors of devices."""

import time
from typing import Any

import pandas as pd
import streamlit as st

from treering.errors import ConfigError, EvidenceError
from treering.runlog.find import AnyRun
from treering_dashboard.frames import cached
from treering_dashboard.frames.telemetry import Telemetry
from treering_dashboard.panels.foreign import figure, label, say
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import age, count, number, plural


def sensor_notes(telemetry: Telemetry) -> None:
    """Says what the curves of the sensors show, and what of the readings is missing."""
    if telemetry.steps.empty:
        st.caption("No readings on record.")
        return
    lost = f"; {plural(telemetry.dropped, 'reading')} lost" if telemetry.dropped else ""
    st.caption(f"Mean over {label(_ranks(telemetry))}, band from the lowest to the highest reading{lost}.")
    if telemetry.by_minute:
        st.caption("Earlier readings are drawn by the minute.")
    if telemetry.cut:
        st.caption("Earlier readings are left out: an earlier version wrote them, and their files are long.")
    if telemetry.damaged:
        st.caption(f"{plural(telemetry.damaged, 'file')} of readings cannot be read.")
    if len(telemetry.speeds) > 1:
        slowest, fastest = telemetry.speeds[0], telemetry.speeds[-1]
        say(
            f"Rank {slowest.rank} computes longest, {number(slowest.compute_s, 's')} a step; rank {fastest.rank} "
            f"shortest, {number(fastest.compute_s, 's')}; of {plural(len(telemetry.speeds), 'rank')}"
        )
    for name, reason in telemetry.reasons.items():
        say(f"{name}: none, {reason}")


def _ranks(telemetry: Telemetry) -> str:
    """How many ranks were read, of how many; the roll-up alone does not say."""
    if telemetry.by_minute and not telemetry.ranks:
        return "all ranks"
    if telemetry.world_size and telemetry.ranks != telemetry.world_size:
        return f"{count(telemetry.ranks)} of {plural(telemetry.world_size, 'rank')}"
    return plural(telemetry.ranks, "rank")


def energy_figures(run: AnyRun) -> None:
    """Energy, cost and CO2e of the run with what is not in them, and XID errors; nothing where there is no device."""
    try:
        energy, sensors = cached.energy(run)
    except EvidenceError:
        return  # the page names what does not hold
    except ConfigError as error:
        say("The energy is not shown.", str(error))
        return
    if energy is not None:
        st.markdown("###### Energy")
        if energy["kwh"] is None:
            say("Not known.", *energy["doubt"])
        else:
            for start in range(0, len(found := _figures(energy)), 3):
                for cell, (title, value, detail) in zip(st.columns(3), found[start : start + 3], strict=False):
                    with cell:
                        figure(title, value, detail)
            say(*(f"·  {each}" for each in energy["doubt"]))
    if sensors["xids"]:
        st.markdown("###### XID errors")
        now = time.time()
        rows = [
            {
                "XID": str(each["code"]),
                "Device": f"{each['device']} of {each['host'] or each['node']}",
                "Attempt": str(each["attempt"]),
                "When": age(now - each["at"]),
            }
            for each in reversed(sensors["xids"])
        ]
        table(pd.DataFrame(rows), "XID errors of devices, newest first", rows=5)


def _figures(energy: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Title, value and detail of each number that is known."""
    found = [("Energy", number(energy["kwh"]), f"kWh, {plural(energy['devices'], 'device')} seen")]
    if energy["joules_per_token"] is not None:
        found.append(("Energy a token", number(energy["joules_per_token"]), "J/token"))
    if energy["tflops_per_watt"] is not None:
        found.append(("Efficiency", number(energy["tflops_per_watt"]), "model TFLOP/s a watt"))
    if energy["measured_tflops_per_device"] is not None:
        found.append(("Measured", number(energy["measured_tflops_per_device"]), "TFLOP/s a device on tensor cores"))
    if energy["cost"] is not None:
        found.append(("Cost", f"{energy['cost']:,.2f}", str(energy["currency"])))
    if energy["co2e_kg"] is not None:
        found.append(("CO₂e", number(energy["co2e_kg"]), "kg"))
    return found
