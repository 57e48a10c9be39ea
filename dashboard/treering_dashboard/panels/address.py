"""What an address asks for, looked at before a box takes it.

A box that is bound to the address takes a default, or the option of that number, for a value that it does not know: the
page would answer about something else. So every value is checked first. One that does not fit is named, with what was
expected, and the page ends there.

Such are an unknown run, checkpoint, step or axis, a negative rank, and a duplicate name.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NoReturn
from urllib.parse import parse_qs

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from treering.foreign import shown
from treering_dashboard.panels.foreign import block, label
from treering_dashboard.panels.text import count

Expected = str | None
"""What was expected in place of a value; None where the value fits."""
Check = Callable[[str], Expected]

LARGEST: Final = 2**53 - 1
"""The largest whole number that a box of a browser holds exactly."""

_SHOWN: Final = 200  # characters of a value
_LISTED: Final = 8
_RESTORED: Final = "restored"
_HIDDEN: Final = ("embed", "embed_options")  # Streamlit's own, which it shows to no page


def among(options: Iterable[str], noun: str = "value") -> Check:
    """The value is one of the options, letter by letter."""
    names = list(options)

    def check(value: str) -> Expected:
        if value in names:
            return None
        near = [name for name in names if value and name.startswith(value)] or names
        listed = ", ".join(near[:_LISTED])
        left = f" ({_LISTED} of {count(len(near))})" if len(near) > _LISTED else ""
        return f"one of {listed}{left}" if near else f"a {noun}, and there is none"

    return check


def whole(least: int, most: int = LARGEST) -> Check:
    """The value is a whole number in plain digits, from `least` to `most`."""

    def check(value: str) -> Expected:
        fits = value.isascii() and value.isdigit() and len(value) <= len(str(most)) and least <= int(value) <= most
        upper = f"{count(most)}" if most < LARGEST else "on"
        return None if fits else f"a whole number from {count(least)} {'to ' if most < LARGEST else ''}{upper}"

    return check


SWITCH: Final = among(("true", "false"))


def text(value: str) -> Expected:
    """Any value fits."""
    del value
    return None


def restore_address() -> None:
    """Runs a page that Back or Forward has opened with the whole of its address.

    Streamlit removes a value, from the browser's address too, if the page before had a box of the same name.
    """
    context = get_script_run_ctx()
    if context is None:
        return
    whole = parse_qs(context.query_string).keys() <= {*st.query_params, *_HIDDEN}
    if context.is_history_navigation and not whole:
        st.session_state[_RESTORED] = True
        st.rerun()
    if st.session_state.pop(_RESTORED, False):
        st.query_params.update()  # tells the browser all of them again


def check_address(**checks: Check) -> None:
    """Ends the page where the address has a value that does not fit.

    Only values that no box has taken yet are looked at: what a visitor chose is known to fit.

    Args:
        checks: by name in the address.
    """
    for key, check in checks.items():
        if key in st.session_state or key not in st.query_params:
            continue
        values = st.query_params.get_all(key)
        if len(values) != 1:
            refuse(f"The address names {label(key)} {count(len(values))} times", key, ", ".join(values), "one")
        expected = check(values[0])
        if expected is not None:
            refuse(f"No such {label(key.removeprefix('other_').replace('_', ' '))}", key, values[0], expected)


def complete(key: str, names: Collection[str]) -> None:
    """Writes whole names into the address in place of unique prefixes, as commands take them, and runs the page again.

    Args:
        key: the name in the address.
        names: what there is.
    """
    if key in st.session_state or key not in st.query_params:
        return
    values = st.query_params.get_all(key)
    found = [_completed(value, names) for value in values]
    if found != values:
        st.query_params[key] = found
        st.rerun()  # a box takes its value from the address that the page began with


def _completed(value: str, names: Collection[str]) -> str:
    found = [name for name in names if value and name.startswith(value)]
    return found[0] if len(found) == 1 and value not in names else value


def check_all(key: str, check: Check, most: int) -> None:
    """The same for a name that an address may have several times, each with another value, at most `most`."""
    if key in st.session_state or key not in st.query_params:
        return
    values = st.query_params.get_all(key)
    for value in values:
        expected = check(value)
        if expected is not None:
            refuse(f"No such {label(key.removesuffix('s'))}", key, value, expected)
    if len(values) > most or len(set(values)) < len(values):
        refuse(
            f"The address names {count(len(values))} {label(key)}", key, ", ".join(values), f"at most {most}, each once"
        )


def refuse(title: str, key: str, value: str, expected: str) -> NoReturn:
    """Says that the named thing does not exist, and ends the page.

    Args:
        title: what is missing.
        key: its name in the address.
        value: as it was asked for.
        expected: what there is.
    """
    st.error(title, icon=":material/link_off:")
    asked = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}… ({count(len(value))} characters)"
    block(f"{key}={shown(asked)}\nexpected {shown(expected)}")
    st.stop()


def gone(noun: str, name: str, there: Collection[str]) -> NoReturn:
    """Says that what a visitor had chosen is there no more, and ends the page."""
    refuse(f"No such {label(noun)}", noun, name, among(there, noun)(name) or "")
