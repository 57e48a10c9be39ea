"""The charts of a page of the dashboard, with the numbers that the browser gets: boards, and specifications of Vega."""

import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from streamlit.testing.v1 import AppTest

from treering_dashboard.panels.wire import decoded

COLUMNS = ("x", "y", "lo", "hi", "bad", "step", "segment", "tokens", "value")


@dataclass(frozen=True)
class DrawnPanel:
    """One panel as the browser gets it."""

    head: dict[str, Any]
    lines: list[pd.DataFrame]
    board: dict[str, Any]

    @property
    def title(self) -> str:
        return self.head["title"]

    @property
    def labels(self) -> list[str]:
        """Label and newest value of every curve with a name or a value."""
        return [f"{each['label']} {each['latest']}".strip() for each in self.head["lines"] if not each["muted"]]

    @property
    def spikes(self) -> pd.DataFrame:
        return pd.DataFrame(self.head["spikes"], columns=["x", "text", "y"])


def boards(app: AppTest) -> list[tuple[dict[str, Any], list[DrawnPanel]]]:
    """Head and panels of each board."""
    found = []
    for element in app.get("bidi_component"):
        head, arrays = decoded(element.proto.bytes)
        panels = []
        for panel in head["panels"]:
            lines = []
            for line in panel["lines"]:
                columns = {name: arrays[line[name]] for name in COLUMNS if name in line}
                frame = pd.DataFrame(columns)
                for name in ("step", "segment", "bad"):
                    if name in frame:
                        frame[name] = frame[name].astype(np.int64)
                lines.append(frame)
            panels.append(DrawnPanel(panel, lines, head))
        found.append((head, panels))
    return found


def titles(app: AppTest) -> list[str]:
    return [panel.title for _, panels in boards(app) for panel in panels]


def panel(app: AppTest, title: str) -> DrawnPanel:
    for _, panels in boards(app):
        for each in panels:
            if each.title == title:
                return each
    raise AssertionError(f"no panel {title!r} among {titles(app)}")


def charts(app: AppTest) -> list[tuple[dict, dict[str, pd.DataFrame]]]:
    """Specification and data of each chart of Vega."""
    found = []
    for element in app.get("vega_lite_chart"):
        data = {
            each.name: pa.ipc.open_stream(io.BytesIO(each.data.data)).read_pandas() for each in element.proto.datasets
        }
        found.append((json.loads(element.proto.spec), data))
    return found
