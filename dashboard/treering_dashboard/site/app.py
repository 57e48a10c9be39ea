"""The script of the dashboard, which `server.py` serves: sign-in and navigation only.

It has its own folder, since Streamlit would take a folder `pages` beside the script for pages.
"""

from pathlib import Path

import streamlit as st

import treering_dashboard
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.frames.ledger import has_ledger
from treering_dashboard.pages import (
    audit,
    batch,
    bias,
    cluster,
    compare,
    contamination,
    continuations,
    data,
    differences,
    logbook,
    megatron,
    run,
    runs,
    scaling,
    search,
    takedown,
    trace,
)
from treering_dashboard.panels.address import restore_address
from treering_dashboard.panels.foreign import label, program, style
from treering_dashboard.panels.palette import PALETTE, theme
from treering_dashboard.panels.state import stall_banner
from treering_dashboard.site.sign_in import sign_in

STYLES = {name: Path(__file__).with_name(f"{name}.css") for name in PALETTE}
HISTORY = Path(__file__).with_name("history.js")
LOGO = str(Path(treering_dashboard.__file__).with_name("logo.svg"))

st.set_page_config(page_title="Treering", page_icon=LOGO, layout="wide")
st.logo(LOGO, size="medium")
sign_in(cached.project())
restore_address()
# The top bar shows the pages of the unnamed section one by one, the others under the section's name.
SECTIONS = {
    "": [
        links.RUNS.page(runs.page),
        links.RUN.page(run.page),
        links.CLUSTER.page(cluster.page),
        links.LOGBOOK.page(logbook.page),
        links.DATA.page(data.page),
        links.COMPARE.page(compare.page),
        links.SCALING.page(scaling.page),
        links.TYPED_RUNS.page(links.open_runs),
    ],
    "Evaluation": [
        links.CONTINUATIONS.page(continuations.page),
        links.BIAS.page(bias.page),
    ],
    "Documents": [
        links.AUDIT.page(audit.page),
        links.BATCH.page(batch.page),
        links.TRACE.page(trace.page),
        links.TAKEDOWN.page(takedown.page),
        links.CONTAMINATION.page(contamination.page),
        links.DIFFERENCES.page(differences.page),
        links.MEGATRON.page(megatron.page),
    ],
}
if has_ledger():
    SECTIONS[""].append(links.SEARCH.page(search.page))
chosen = st.navigation(SECTIONS, position="top")
st.set_page_config(page_title=f"{chosen.title} · Treering")
style(Path(__file__).with_name("app.css"))
style(STYLES[theme()])
program(HISTORY)
# The bar marks a page of a section only while the section is open, so its heading names the section as well.
section = next(name for name, pages in SECTIONS.items() if chosen.url_path in {page.url_path for page in pages})
st.header(label(f"{section}: {chosen.title}" if section else chosen.title))
if chosen.title != links.RUNS.title:  # its table begins with these runs
    stall_banner()
chosen.run()
