"""A page of the dashboard, run without a browser, and what it shows."""

from pathlib import Path
from typing import Final

import pandas as pd
from streamlit.testing.v1 import AppTest

APP: Final = str(Path(__file__).parents[2] / "dashboard" / "treering_dashboard" / "site" / "app.py")
"""The script that Streamlit runs: navigation and all pages."""


def page(name: str, **query: object) -> AppTest:
    """Runs a page for an address; none may end in a traceback."""
    app = AppTest.from_string(f"from treering_dashboard.pages import {name}\n{name}.page()", default_timeout=30)
    for key, value in query.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception
    return app


def texts(app: AppTest) -> str:
    """All that stands on a page in words, tables left out."""
    parts = [*app.markdown, *app.text, *app.caption, *app.code, *app.error, *app.warning, *app.info]
    return "\n".join(str(element.value) for element in parts)


def metrics(app: AppTest) -> dict[str, str]:
    """The large numbers by their labels."""
    return {metric.label: metric.value for metric in app.metric}


def table(app: AppTest, column: str) -> pd.DataFrame:
    """The table with a column of that name."""
    return next(frame.value for frame in app.dataframe if column in frame.value)
