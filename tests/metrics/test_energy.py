"""Energy of a run: by counters and power, over all attempts, with price, factor and doubt."""

import json
import time

import pytest

from treering.cli.commands.show import show
from treering.config.operation import ElectricityConfig, TelemetryConfig
from treering.errors import ConfigError
from treering.metrics.energy import AttemptSpan, run_energy
from treering.metrics.sensors import sensors
from treering.record.start import start
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.telemetry.events import append_event
from treering.runlog.telemetry.live import LiveWriter

SECONDS = 3600
POWER_W = 500.0
PRICED = TelemetryConfig(price_per_kwh=0.2, currency="EUR", co2e_g_per_kwh=400)
UNPRICED = ElectricityConfig()


def attempt(tmp_path, number=1, *, devices=2, seconds=SECONDS, step=10, counters=(0,), **columns):
    """An attempt whose devices draw 500 W each; some have a counter."""
    folder = tmp_path / "attempts" / f"{number:04d}"
    writer = LiveWriter(folder / "telemetry", 0)
    places = list(range(devices))
    for moment in range(0, seconds + 1, step):
        values = {
            "device/power": [POWER_W] * devices,
            "device/energy": [POWER_W * moment if device in counters else None for device in places],
            **{name: [value] * devices for name, value in columns.items()},
        }
        writer.append(1000.0 + moment, places, places, values)
    return AttemptDirectory(folder)


def span(found, devices=2, config=UNPRICED, ended_at=1000.0 + SECONDS):
    return AttemptSpan(found, 1000.0, ended_at, devices, config)


def test_an_hour_of_two_devices_is_a_kilowatt_hour(tmp_path):
    found = run_energy([span(attempt(tmp_path), config=PRICED)], tokens=3_600_000, tflops_per_device=150.0)
    assert found["kwh"] == pytest.approx(1.0)
    assert (found["counted_kwh"], found["integrated_kwh"]) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (found["devices"], found["devices_with_counter"], found["seen_share"]) == (2, 1, 1.0)
    assert found["joules_per_token"] == pytest.approx(1.0)
    assert (found["power_w"], found["tflops_per_watt"]) == (500.0, 0.3)
    assert (found["cost"], found["currency"], found["co2e_kg"]) == (pytest.approx(0.2), "EUR", pytest.approx(0.4))
    assert found["doubt"] == [
        "1 of 2 devices by their energy counter, 1 by power over time, as they have no counter",
        "hosts, network and cooling are not in it",
    ]
    assert found["measured_tflops_per_device"] is None


def test_measured_flops_are_beside_the_models(tmp_path):
    found = run_energy([span(attempt(tmp_path, seconds=60, **{"device/tensor_tflops": 480.5}))], None, 400.0)
    assert found["measured_tflops_per_device"] == 480.5
    assert (found["tflops_per_watt"], found["joules_per_token"]) == (0.8, None)


def test_what_was_not_seen_is_said_and_not_made_up(tmp_path):
    whole = span(attempt(tmp_path), devices=8, config=PRICED)
    half = span(attempt(tmp_path, 2, seconds=SECONDS // 2), devices=8)
    found = run_energy([whole, half], tokens=None)
    assert found["kwh"] == pytest.approx(1.5)
    assert found["seen_share"] == pytest.approx((2 + 1) / 16)
    assert found["doubt"][1:] == [
        "6 of 8 devices were never seen: their energy is not in it",
        "readings cover 18.8% of the devices' time: the energy of the rest is not in it",
        "the cost leaves out 0.5 kWh of attempts without a price",
        "CO2e leaves out 0.5 kWh of attempts without a factor",
        "hosts, network and cooling are not in it",
    ]
    assert found["cost"] == pytest.approx(0.2)


def test_two_currencies_have_no_sum(tmp_path):
    dollars = TelemetryConfig(price_per_kwh=0.1, currency="USD")
    found = run_energy(
        [span(attempt(tmp_path), config=PRICED), span(attempt(tmp_path, 2), config=dollars)], tokens=None
    )
    assert (found["cost"], found["currency"]) == (None, None)
    assert "no cost: the attempts have prices in EUR and USD" in found["doubt"]


def test_a_run_without_devices_has_no_energy_and_one_whose_devices_are_unseen_says_why(tmp_path):
    empty = AttemptDirectory(tmp_path / "attempts" / "0001")
    assert run_energy([span(empty, devices=0)], tokens=10) is None
    assert run_energy([span(empty, devices=None)], tokens=10) is None
    assert run_energy([], tokens=None) is None
    unseen = run_energy([span(empty, devices=8, config=PRICED)], tokens=10)
    assert (unseen["kwh"], unseen["cost"], unseen["co2e_kg"], unseen["joules_per_token"]) == (None,) * 4
    assert unseen["doubt"] == ["none of 8 devices was seen: they left no reading of power or energy"]
    append_event(empty.telemetry.path, 0, {"time": 1.0, "reasons": {"device": "nvmlInit: Driver Not Loaded"}})
    assert run_energy([span(empty, devices=8)], 10)["doubt"] == [
        "none of 8 devices was seen: nvmlInit: Driver Not Loaded"
    ]


def test_devices_of_a_run_whose_number_is_not_on_record(tmp_path):
    found = run_energy([span(attempt(tmp_path), devices=None)], tokens=None)
    assert (found["seen_share"], found["kwh"]) == (None, pytest.approx(1.0))


def test_errors_and_lost_readings_of_all_attempts(tmp_path):
    folders = [AttemptDirectory(tmp_path / "attempts" / f"{number:04d}") for number in (1, 2)]
    for number, each in enumerate(folders, 1):
        path = each.telemetry.path
        append_event(path, 8, {"time": 1.0, "host": f"dgx{number}", "reasons": {"device/energy": f"why {number}"}})
        append_event(path, 8, {"time": 2.0, "lost": 3})
        append_event(path, 8, {"time": 5.0, "lost": 4})
        append_event(path, 8, {"time": 6.0, "xids": [{"device": 3, "code": 79}], "other": 1})
        append_event(path, 8, {"time": 6.0, "xids": [{"device": "x"}]})
    found = sensors(folders)
    assert found["lost_readings"] == 8
    assert found["missing"] == {"device/energy": "why 2"}
    assert found["xids"] == [
        {"attempt": number, "at": 6.0, "node": 8, "device": 3, "code": 79, "host": f"dgx{number}"} for number in (1, 2)
    ]


def test_a_recorded_run_has_the_price_of_the_project(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    with start("loop") as run:
        run.step(loss=1.0)
    writer, before = LiveWriter(run.path / "attempts" / "0001" / "telemetry", 0), time.time() - 60
    for moment in range(0, 61, 10):
        writer.append(before + moment, [0], [0], {"device/power": [POWER_W]})
    show(run.path.name, json=True)
    unpriced = json.loads(capsys.readouterr().out)["energy"]
    assert (unpriced["cost"], unpriced["co2e_kg"]) == (None, None)
    (tmp_path / "treering.yaml").write_text(
        "electricity: {price_per_kwh: 0.2, currency: EUR, co2e_g_per_kwh: 400}\n", encoding="utf-8"
    )
    show(run.path.name, json=True)
    priced = json.loads(capsys.readouterr().out)["energy"]
    assert priced["kwh"] == pytest.approx(POWER_W * 60 / 3.6e6)
    assert (priced["cost"], priced["currency"]) == (pytest.approx(0.2 * priced["kwh"]), "EUR")
    assert priced["co2e_kg"] == pytest.approx(0.4 * priced["kwh"])
    (tmp_path / "treering.yaml").write_text("electricity: {price_per_kwh: 0.2}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"treering\.yaml.*electricity.*currency beside it"):
        show(run.path.name, json=True)
