"""Viewers of a dashboard without a browser: they speak Streamlit's protocol, and see what a browser gets."""

import time
from dataclasses import dataclass, field
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

WAIT_S = 600.0


@dataclass
class Seen:
    """What came of one run of the script.

    Attributes:
        seconds: until the script had finished.
        board_s: until the board came, None where none did.
        received: bytes.
        boards: the board's bytes, in their order.
    """

    seconds: float = 0.0
    board_s: float | None = None
    received: int = 0
    boards: list[bytes] = field(default_factory=list)


class Viewer:
    """One open page.

    Args:
        address: of the dashboard, `http://127.0.0.1:PORT`.
        page: of the address.
        query: of the address, without `?`.
    """

    def __init__(self, address: str, page: str, query: str) -> None:
        url = f"{address.replace('http', 'ws', 1)}/_stcore/stream"
        self._socket = connect(url, subprotocols=["streamlit", "PLACEHOLDER"], max_size=None, origin=address)
        self._page, self._query = page, query
        self._hash = ""
        self._kept: list[str] = []
        self.live: str = ""

    def open(self) -> Seen:
        """Loads the page."""
        return self._ask(ClientState(query_string=self._query, page_name=self._page))

    def refresh(self) -> Seen:
        """What the page asks by itself while a run is alive."""
        state = ClientState(
            query_string=self._query, page_script_hash=self._hash, fragment_id=self.live, is_auto_rerun=True
        )
        return self._ask(state)

    def close(self) -> None:
        """Leaves the page."""
        self._socket.close()

    def _ask(self, state: ClientState) -> Seen:
        state.cached_message_hashes.extend(self._kept)
        begin, seen = time.monotonic(), Seen()
        self._socket.send(BackMsg(rerun_script=state).SerializeToString())
        while True:
            raw = self._socket.recv(timeout=WAIT_S)
            message = ForwardMsg.FromString(raw if isinstance(raw, bytes) else raw.encode())
            seen.received += len(raw)
            if self._look(message, seen, begin):
                seen.seconds = time.monotonic() - begin
                return seen

    def _look(self, message: ForwardMsg, seen: Seen, begin: float) -> bool:
        """Takes what a message says; whether the script has finished."""
        kind = message.WhichOneof("type")
        if message.hash and message.metadata.cacheable:
            self._kept.append(message.hash)
        if kind == "new_session":
            self._hash = message.new_session.page_script_hash
        elif kind == "auto_rerun":
            self.live = message.auto_rerun.fragment_id
        elif kind == "delta":
            element: Any = message.delta.new_element
            if message.delta.WhichOneof("type") == "new_element" and element.WhichOneof("type") == "bidi_component":
                seen.board_s = time.monotonic() - begin
                seen.boards.append(element.bidi_component.bytes)
        return kind == "script_finished" and message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN
