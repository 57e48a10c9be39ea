"""A proxy of an HTTP server on this machine that can be down, slow, silent, full of errors, or cut connections.

It passes bytes on as they are: a request to S3 signs its headers, and the host among them.
"""

import socket
import threading
import time
from contextlib import suppress
from typing import Literal

Fault = Literal["none", "down", "slow", "500", "cut", "hung"]

ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
SLOW_S = 0.3


class FaultyProxy:
    """Passes connections on to a port; `fault` says what happens to new ones, and to what old ones send next.

    Args:
        port: of the server.
    """

    def __init__(self, port: int) -> None:
        self.fault: Fault = "none"
        self.connections = 0
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._server)) as server:
            answers = threading.Thread(target=self._answers, args=(server, client), daemon=True)
            answers.start()
            while asked := client.recv(1 << 16):
                match self.fault:
                    case "down":
                        return
                    case "500":
                        client.sendall(ERROR)
                        return
                    case "cut":  # half of what is sent arrives
                        server.sendall(asked[: len(asked) // 2])
                        return
                    case "slow":
                        time.sleep(SLOW_S)
                    case "hung":
                        while self.fault == "hung":
                            time.sleep(0.05)
                server.sendall(asked)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while answer := server.recv(1 << 16):
                client.sendall(answer)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
