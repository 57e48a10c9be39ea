"""The dashboard as a server: `streamlit run dashboard/treering_dashboard/site/server.py`.

Before the pages stands what no page can do: a request by a host name that is not the dashboard's gets a page that says
why, where Streamlit would show an empty page that waits for its connection.
"""

from html import escape
from http import HTTPStatus

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "SAMEORIGIN",
}
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Treering: not this name</title>
<style>:root {{ color-scheme: light dark }} body {{ font: 1rem/1.5 system-ui; max-width: 40rem; margin: 4rem auto;
padding: 0 1rem }} code {{ overflow-wrap: anywhere }}</style>
<h1>The dashboard does not answer to this name</h1>
<p>You opened it as <code>{found}</code>. It answers to {names}: a page elsewhere could otherwise read it through your
browser under a name of its own.</p>
<p>Open it by one of these names. Whoever serves it can add a name:
<code>treering up --host ADDRESS --public-url https://NAME</code>.</p>
"""


class OwnNames:
    """Answers requests by the dashboard's own host names (`server.allowedHosts`), and explains itself to all others.

    Args:
        app: what answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":  # Streamlit itself refuses a connection by another name
            await self._app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host")
        if not is_host_allowed(host):
            names = ", ".join(f"<code>{escape(name)}</code>" for name in st.get_option("server.allowedHosts"))
            page = PAGE.format(found=escape(host or ""), names=names)
            await HTMLResponse(page, HTTPStatus.FORBIDDEN, headers=HEADERS)(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)


app = st.App("app.py", middleware=[Middleware(OwnNames)])
