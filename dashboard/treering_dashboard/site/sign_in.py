"""Lets in who may see the dashboard, where the project has an identity provider."""

import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError

from treering.config.settings import read_settings
from treering.errors import ConfigError
from treering.project import Project
from treering_dashboard.panels.foreign import say


def has_provider() -> bool:
    """Whether Streamlit's secrets name an identity provider: then nobody sees a page without signing in."""
    try:
        return "auth" in st.secrets
    except StreamlitSecretNotFoundError:
        return False


def is_allowed(address: str, allowed: tuple[str, ...]) -> bool:
    """Whether an e-mail address is on a list of addresses, and of `*@DOMAIN` for a whole domain."""
    found = address.casefold()
    names = {each.strip().casefold() for each in allowed}
    name, at, domain = found.rpartition("@")
    return bool(name and at and domain) and (found in names or f"*@{domain}" in names)


def sign_in(project: Project) -> None:
    """Ends the script with a page that asks to sign in, or says why an account is not let in; else returns."""
    if not has_provider():
        return
    if not st.user.is_logged_in:
        st.title("Sign in")
        say("This dashboard shows the runs and data of a project to its people.")
        st.button("Sign in", type="primary", on_click=st.login)
        st.stop()
    address = str(st.user.get("email") or "")
    try:
        allowed = read_settings(project).dashboard.allowed
    except ConfigError as error:
        st.title("Nobody is let in")
        say(str(error))
        st.stop()
    verified = st.user.get("email_verified") is not False
    if verified and is_allowed(address, allowed):
        return
    st.title("This account is not let in")
    say(
        f"You signed in as {address or 'an account without an e-mail address'}"
        f"{'' if verified else ', an address that is not verified'}. "
        f"Whoever serves the dashboard can add it to dashboard.allowed in {project.settings.name}."
    )
    st.button("Sign in with another account", on_click=st.logout)
    st.stop()
