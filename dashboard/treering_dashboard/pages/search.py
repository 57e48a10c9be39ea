"""Runs and checkpoints of all projects of a team, by the ledger: what `treering search` finds."""

import shlex
import time
from typing import Any, Final

import pandas as pd
import streamlit as st

from treering.errors import TreeringError
from treering.store.ledger.search.fields import FIELDS
from treering.store.ledger.search.find import SORTS, Answer, Found
from treering_dashboard import links
from treering_dashboard.frames import cached
from treering_dashboard.frames.ledger import MOST, ask
from treering_dashboard.panels.address import check_address, text
from treering_dashboard.panels.answer import command, error_box, open_ends
from treering_dashboard.panels.foreign import label, say
from treering_dashboard.panels.tables import choose_row, table
from treering_dashboard.panels.text import NOTHING, age, count, number, plural, reading

EXAMPLES: Final = (
    "state:running",
    "corpus:code licence:GPL* score.hellaswag>0.7",
    "tag.owner:ada updated>=2026-11",
    "-licence:GPL*,AGPL* promoted:production",
)

_NEWEST: Final = "-updated"


def page() -> None:
    """Draws the answer to the query that the URL holds."""
    check_address(q=text, sort=text)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        query = st.text_input(
            "Query", key="q", bind="query-params", placeholder=EXAMPLES[1], label_visibility="collapsed", width=720
        )
        sort = st.text_input("Sort", key="sort", bind="query-params", placeholder=_NEWEST, width=200) or _NEWEST
    with st.expander("What can be asked"):
        _help()
    try:
        place, answer = ask(query or "", sort)
    except TreeringError as error:
        error_box("The ledger has no answer.", error)
    else:
        if answer is None:
            st.info("The ledger is empty. `treering ship` writes the runs of a project to it.", icon=":material/info:")
        else:
            _answer(answer, sort, place)
    command(f"treering search --sort={shlex.quote(sort)}" + (f" -- {shlex.quote(query)}" if query else ""))


def _help() -> None:
    st.caption(
        "A term is a field with `:` and a text in which `*` stands for any text, or with a comparison, or a word. All "
        "terms must hold; `-` before a term says that it must not. Commas separate alternatives."
    )
    names = {name: f"{name}.…" if field.needs_part else name for name, field in FIELDS.items()}
    rows = [{"Field": names[name], "Is": field.kind, "Meaning": field.meaning} for name, field in FIELDS.items()]
    table(pd.DataFrame(rows), "Fields of a query", rows=9, widths={"Field": 120, "Is": 80})
    st.caption(f"Sort by one of {label(', '.join(SORTS))}; with `-` the largest first.")
    say(*EXAMPLES)


def _answer(answer: Answer, sort: str, place: str) -> None:
    what = plural(answer.count, "checkpoint" if answer.each_checkpoint else "run")
    left = f", the first {count(MOST)} are shown" if answer.count > len(answer.found) else ""
    heard = "nothing was shipped yet" if answer.seen_at is None else f"a shipper reported {_ago(answer.seen_at)}"
    say(f"{what}{left}  ·  {place}: {heard}")
    here = {run.path.name for run in cached.all_runs()}
    if answer.found:
        frame = found_frame(answer, sort, here)
        chosen = choose_row(
            frame, "What the ledger found", key=f"found {answer.query} {sort}", numbers=_NUMBERS, rows=14
        )
        _details(answer.found[chosen], here)
    open_ends("What is not certain", answer.doubt)


_NUMBERS: Final = ("Step", "Tokens")


def found_frame(answer: Answer, sort: str, here: set[str]) -> pd.DataFrame:
    """One row a run or checkpoint; the scores that were asked for have columns.

    Args:
        answer: of the ledger.
        sort: that it is sorted by.
        here: runs whose folder is in this project.
    """
    rows = []
    for found in answer.found:
        run, checkpoint = found.run, found.checkpoint
        scores = {}
        for part in answer.asked_scores(sort):
            best = found.best_score(part)
            scores[part] = (
                NOTHING if best is None else f"{number(best[0])}" + ("" if best[1] == part else f" {best[1]}")
            )
        tokens = checkpoint["tokens"]
        rows.append(
            {
                "Project": run["project"],
                "Experiment": run["experiment"],
                "Run": run["id"],
                "State": run["state"],
                "Step": count(checkpoint["step"]),
                "Checkpoint": checkpoint["status"],
                "Tokens": NOTHING if tokens is None else number(tokens),
                **scores,
                "Promoted": ", ".join(found.promoted),
                "Tags": ", ".join(found.tags),
                "Updated": _ago(run["updated_at"]),
                "Here": "✔" if run["id"] in here else "",
            }
        )
    return pd.DataFrame(rows)


def _details(found: Found, here: set[str]) -> None:
    """Scores, corpora and notes of one of them, and the way to its run."""
    run = found.run
    st.markdown(f"###### Run {label(run['id'][:8])} of {label(run['project'])}")
    if run["id"] in here:
        st.page_link(
            links.RUN.link, label="Open the run", icon=":material/monitoring:", query_params={"run": run["id"]}
        )
    else:
        st.caption(f"Its folder is not in this project but on {label(run['host'])}. `treering mirror` brings a copy.")
    left, middle, right = st.columns(3, gap="medium")
    with left:
        _part("Scores", [_score(each) for each in found.scores], "None in the ledger.", ("Value", "±"))
    with middle:
        _part("Corpora", [_corpus(each) for each in found.corpora], "Not known what it read.", ("Tokens",))
    with right:
        notes = [
            {"Note": each["text"], "By": each["by"], "When": _ago(each["at"]), "From": each["origin"]}
            for each in found.notes
        ]
        _part("Notes", notes[::-1], "None.", ())


def _part(title: str, rows: list[dict[str, str]], nothing: str, numbers: tuple[str, ...]) -> None:
    st.markdown(f"###### {label(title)}")
    if rows:
        table(pd.DataFrame(rows), title, numbers=numbers, rows=8)
    else:
        say(nothing)


def _score(score: Any) -> dict[str, str]:
    shots = f"@{score['shots']}" if score["shots"] >= 0 else ""
    stderr = score.get("stderr")
    return {
        "Score": f"{score['task']}.{score['metric']}{shots}",
        "Value": reading(score["value"]),
        "±": "" if stderr is None else number(stderr),
    }


def _corpus(read: Any) -> dict[str, str]:
    licences = read["licences"]
    return {
        "Corpus": read["name"],
        "Tokens": NOTHING if read["tokens"] is None else number(read["tokens"]),
        "Licences": "not known" if licences is None else ", ".join(licences) or "none named",
    }


def _ago(at: float | None) -> str:
    return NOTHING if at is None else age(time.time() - at)
