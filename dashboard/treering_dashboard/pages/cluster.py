"""The cluster of a run: every device of every node, every rank over the newest steps, and the ranks that are behind."""

import time
from typing import Final

import streamlit as st

from treering.runlog.find import AnyRun
from treering_dashboard.frames import cached
from treering_dashboard.frames.cluster import COMPUTE, Cluster, cluster
from treering_dashboard.panels.address import among, check_address
from treering_dashboard.panels.choice import all_runs_or_stop, choose_run, keep_choice
from treering_dashboard.panels.cluster import TITLES, faults, grid_map, steps_map, title, verdict, worst_ranks
from treering_dashboard.panels.foreign import block, label, say
from treering_dashboard.panels.heat_maps import draw
from treering_dashboard.panels.state import badge
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import age, count, plural

REFRESH_S: Final = 10
_WORST: Final = 20
_OF_STEPS: Final = {
    "compute": COMPUTE,
    "step": "rank/step",
    "communication": "rank/communication",
    "tflops": "rank/tflops",
}


def page() -> None:
    """Draws the page; it looks again by itself while the run is alive."""
    runs = all_runs_or_stop()
    check_address(quantity=among(TITLES, "quantity"), ranks_by=among(_OF_STEPS, "number of the ranks"))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        run = choose_run(runs)
        alive = cached.summary(run).alive
        shown = _choose(cluster(run, alive=alive))
    live = st.fragment(_live, run_every=REFRESH_S if alive else None, key="live")
    live(run, shown, was_alive=alive)


def _choose(found: Cluster | None) -> str:
    """The quantity of the grid, empty where no device has one; it is in the address also where it was not chosen."""
    known = set(found.grid.known()) if found else set()
    options = [name for name, metric in TITLES.items() if metric in known]
    if not options:
        return ""
    asked = st.query_params.get("quantity")
    if asked is not None and asked not in options and "quantity" not in st.session_state:
        say(f"{asked}: no device of this run has readings of it.")
        del st.query_params["quantity"]
    keep_choice("quantity", options[0], options)
    chosen = st.selectbox(
        "Quantity of the devices",
        options,
        index=None,
        required=True,
        key="quantity",
        bind="query-params",
        label_visibility="collapsed",
        width=230,
    )
    return TITLES[chosen or options[0]]


def _live(run: AnyRun, shown: str, *, was_alive: bool) -> None:
    summary = cached.summary(run)
    if summary.alive != was_alive:
        st.rerun()
    found = cluster(run, alive=was_alive)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        badge(summary.state)
        if found is not None:
            say(_read(found))
    if found is None or not shown:
        _nothing(found)
        return
    _verdict(found)
    st.markdown(f"###### Every device, newest minute: {label(title(shown))}")
    alt_text = f"{title(shown)} of {plural(len(found.grid), 'device')}, nodes beside each other"
    draw(grid_map(found, shown), alt_text, run.path.name[:8])
    _steps(found, run.path.name[:8])
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.markdown("###### Slowest ranks")
        if found.ranks:
            numbers = ("Rank", "Device", "Computes", "Above peers", "Distance", "Behind in")
            table(worst_ranks(found, _WORST), "Ranks that compute longest", numbers=numbers, rows=12)
            st.caption(
                "Behind: 2 % and six usual distances above the median of the ranks of the same pipeline stage, "
                "the median over the steps shown."
            )
        else:
            st.caption("No rank has reported the time of a step.")
    with right:
        st.markdown("###### Devices with a fault")
        broken = faults(found)
        if len(broken):
            table(broken, "Devices with a fault", rows=12)
        else:
            st.caption("None: no uncorrected ECC error, XID error, failed memory row, or clock slowed by heat.")
    _doubt(found)


def _read(found: Cluster) -> str:
    attempt = f"attempt {found.attempt}" if found.newest else f"attempt {found.attempt}, the newest one with readings"
    if not found.read_until:
        return f"{attempt}  ·  no reading left"
    read = "" if found.world_size in {0, found.num_ranks} else f"{count(found.num_ranks)} of "
    ranks = plural(found.world_size or found.num_ranks, "rank")
    return f"{attempt}  ·  {read}{ranks}  ·  read {age(time.time() - found.read_until)}"


def _verdict(found: Cluster) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if found.flagged:
            st.badge("straggler", icon=":material/warning:", color="red")
        elif found.ranks:
            st.badge("even", icon=":material/check_circle:", color="green")
        else:
            st.badge("not judged", icon=":material/help:", color="gray")
        say(verdict(found))


def _steps(found: Cluster, file: str) -> None:
    """The ranks over the steps."""
    st.markdown("###### Every rank over the newest steps")
    options = [key for key, metric in _OF_STEPS.items() if metric in found.steps]
    if not options:
        st.caption("No rank has reported a step since the attempt's first ring: ranks report once an interval.")
        return
    keep_choice("ranks_by", options[0], options)
    chosen = st.segmented_control(
        "Number of the ranks", options, required=True, key="ranks_by", bind="query-params", label_visibility="collapsed"
    )
    metric = _OF_STEPS[chosen or options[0]]
    steps = found.steps[metric]
    draw(steps_map(found, metric), f"{title(metric)} of {plural(len(steps.ranks), 'rank')} over the newest steps", file)
    first, last = int(steps.steps[0]), int(steps.steps[-1])
    st.caption(
        f"Steps {count(first)} to {count(last)} in {plural(len(steps.steps), 'row')}; the colour is the distance from "
        "the median of a rank's peers in the same steps."
    )


def _doubt(found: Cluster) -> None:
    """What is not on the page, and why."""
    lines = [f"{metric}: none, {text}" for metric, text in found.reasons.items()]
    if found.world_size and found.num_ranks < found.world_size:
        missing = found.world_size - found.num_ranks
        lines.insert(
            0, f"{plural(missing, 'rank')} without a reading in the newest minute: stopped, or its collector died"
        )
    if found.lost:
        lines.append(f"{plural(found.lost, 'reading')} lost")
    if found.damaged:
        lines.append(f"{plural(found.damaged, 'file')} of readings cannot be read")
    if lines:
        st.markdown("###### Missing")
        say(*lines)


def _nothing(found: Cluster | None) -> None:
    st.info("No readings on record, so no device can be compared.", icon=":material/sensors_off:")
    if found is not None and found.deleted:
        deleted = plural(found.deleted, "reading")
        say(f"`treering gc` deleted {deleted} of single devices; the Run page has their roll-up.")
        return
    say(
        "A training writes readings from its second interval on (telemetry.interval_s of the config, one second). "
        "A shorter training has none; of this machine's sensors this says what works:"
    )
    block("treering doctor", "bash")
    if found is not None:
        say(*(f"{metric}: none, {text}" for metric, text in found.reasons.items()))
