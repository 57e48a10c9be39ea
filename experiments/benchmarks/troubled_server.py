"""Stands before a real server, such as MLflow's, and makes the trouble that networks and servers make.

with TroubledServer(port_of_the_real_server) as server:
    server.trouble = "error"  # every request is answered 500
    …
"""

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

Trouble = Literal["none", "down", "slow", "error", "lost"]
"""`down`: connections are closed; `slow`: every request waits; `error`: every request is answered 500; `lost`: every
request is served, but its answer never arrives."""


class TroubledServer:
    """A proxy on 127.0.0.1.

    Args:
        port: of the real server.
        slow_s: seconds that a slow request waits.

    Attributes:
        trouble: what happens to requests from now on.
        requests: how many came while each trouble lasted.
    """

    def __init__(self, port: int, slow_s: float = 2.0) -> None:
        self.trouble: Trouble = "none"
        self.requests: dict[str, int] = {}
        self.slow_s = slow_s
        self._real = port
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self}))

    @property
    def url(self) -> str:
        """What clients are given."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def served(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        """The real server's answer: status, type, content."""
        connection = http.client.HTTPConnection("127.0.0.1", self._real, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", "application/json"), answer.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    owner: TroubledServer

    def _do(self) -> None:
        owner = self.owner
        trouble = owner.trouble
        owner.requests[trouble] = owner.requests.get(trouble, 0) + 1
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if trouble == "down":
            return
        if trouble == "slow":
            time.sleep(owner.slow_s)
        if trouble == "error":
            status, kind, content = 500, "application/json", b'{"error_code": "INTERNAL_ERROR", "message": "made up"}'
        else:
            headers = {key: value for key, value in self.headers.items() if key.lower() not in {"host", "connection"}}
            status, kind, content = owner.served(self.command, self.path, headers, body)
        if trouble == "lost":
            return
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


for method in ("GET", "POST", "PATCH", "PUT", "DELETE"):
    setattr(_Handler, f"do_{method}", _Handler._do)  # noqa: SLF001 - the names that http.server looks for
