"""The charts of a page of the dashboard: panels, layers, and the data that they draw."""

import io
import json

import pandas as pd
import pyarrow as pa
from streamlit.testing.v1 import AppTest


def charts(app: AppTest) -> list[tuple[dict, dict[str, pd.DataFrame]]]:
    """Specification and data of each chart."""
    found = []
    for element in app.get("vega_lite_chart"):
        data = {
            each.name: pa.ipc.open_stream(io.BytesIO(each.data.data)).read_pandas() for each in element.proto.datasets
        }
        found.append((json.loads(element.proto.spec), data))
    return found


def panel(app: AppTest, title: str) -> tuple[dict, dict[str, pd.DataFrame]]:
    for spec, data in charts(app):
        for view in spec["vconcat"]:
            if view["title"] == title:
                return view, data
    raise AssertionError(f"no panel {title!r}")


def layers(view: dict, mark: str) -> list[dict]:
    return [layer for layer in view["layer"] if layer["mark"]["type"] == mark]


def rows(layer: dict, data: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return data[layer["data"]["name"]]


def header_texts(view: dict) -> list[str]:
    return [layer["encoding"]["text"]["value"] for layer in layers(view, "text")]
