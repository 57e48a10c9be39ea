"""A graph in layers, each read from the one before."""

from collections.abc import Sequence
from typing import Final

import altair as alt
import pandas as pd

from treering.foreign import shown
from treering_dashboard.frames.lineage import Edge, Node
from treering_dashboard.panels.palette import INK, PALETTE, Theme

_ROW: Final = 34


def graph(nodes: Sequence[Node], edges: Sequence[Edge], titles: Sequence[str], of: Theme) -> alt.LayerChart:
    """The graph.

    Args:
        nodes: in the order in which each layer lists them.
        edges: between them.
        titles: of the layers.
        of: the page's theme.
    """
    rows = {layer: [node for node in nodes if node.layer == layer] for layer in range(len(titles))}
    most = max(map(len, rows.values()))
    place = {
        node.key: (layer, (number + 0.5) * most / len(own) - 0.5)
        for layer, own in rows.items()
        for number, node in enumerate(own)
    }
    points = pd.DataFrame(
        [
            {
                "x": place[node.key][0],
                "y": place[node.key][1],
                "label": shown(node.label),
                "detail": shown(node.detail),
                "what": titles[node.layer],
            }
            for node in nodes
        ]
    )
    lines = pd.DataFrame(
        [
            {"edge": number, "x": place[end][0], "y": place[end][1], "share": edge.share}
            for number, edge in enumerate(edges)
            for end in (edge.source, edge.target)
        ]
    )
    x = alt.X("x:Q", scale=alt.Scale(domain=[-0.1, len(titles) - 0.35]), axis=None)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[most - 0.4, -0.8]), axis=None)
    width = alt.StrokeWidth("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.75, 9]), legend=None)
    colour = alt.Color(
        "what:N", legend=None, scale=alt.Scale(domain=list(titles), range=list(PALETTE[of])[: len(titles)])
    )
    drawn = alt.Chart(lines).mark_line(color=PALETTE[of][-1]).encode(x=x, y=y, detail="edge:N", strokeWidth=width)
    marks = alt.Chart(points).mark_square(size=110, opacity=1)
    tooltip = [alt.Tooltip("what:N", title="What"), alt.Tooltip("label:N", title="Name"), alt.Tooltip("detail:N")]
    names = alt.Chart(points).mark_text(
        align="left", baseline="bottom", dy=-7, fontSize=11, color=INK[of], limit=alt.expr("width / 5.4")
    )
    layers = [
        drawn,
        marks.encode(x=x, y=y, color=colour, tooltip=tooltip),
        names.encode(x=x, y=y, text="label:N", tooltip=tooltip),
    ]
    return alt.LayerChart(layer=layers, height=max(120, _ROW * most + 20))
