"""Web archives in the form of Common Crawl's: real responses of a local server, written by warcio."""

import io
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from uuid import UUID

from warcio.warcwriter import WARCWriter

DATE = "2020-11-24T10:30:00Z"
ADDRESS = "https://pages.example"


@dataclass(frozen=True)
class Answer:
    """What the server sends for a path; a chunked body goes out in two chunks."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/html; charset=utf-8"})
    status: int = 200
    chunked: bool = False


@contextmanager
def serving(answers: Mapping[str, Answer]) -> Iterator[int]:
    """The port of a server on 127.0.0.1 that gives these answers."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer = answers[self.path]
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                half = len(answer.body) // 2
                for part in (answer.body[:half], answer.body[half:], b""):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            else:
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def fetched(answers: Mapping[str, Answer]) -> dict[str, bytes]:
    """The bytes that a server sent, by path: what a crawler keeps in a WARC file."""
    found = {}
    with serving(answers) as port:
        for path in answers:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: pages.example\r\n\r\n".encode())
                with connection.makefile("rb") as stream:
                    found[path] = stream.read()
    return found


@dataclass(frozen=True)
class Record:
    """One record of an archive; its number makes its id."""

    content: bytes
    kind: str = "response"
    path: str = "/"
    media_type: str = "application/http; msgtype=response"


def record_id(number: int) -> str:
    """The id of a record, as it is written without brackets."""
    return f"urn:uuid:{UUID(int=number)}"


def archive(records: Iterable[Record], *, compressed: bool = True, first: int = 0) -> bytes:
    """A WARC file."""
    stream = io.BytesIO()
    writer = WARCWriter(stream, gzip=compressed)
    for number, record in enumerate(records, first):
        made = writer.create_warc_record(
            ADDRESS + record.path,
            "resource",  # a type whose content warcio leaves alone
            payload=io.BytesIO(record.content),
            length=len(record.content),
            warc_content_type=record.media_type,
            warc_headers_dict={"WARC-Record-ID": f"<{record_id(number)}>", "WARC-Date": DATE},
        )
        made.rec_headers.replace_header("WARC-Type", record.kind)
        writer.write_record(made)
    return stream.getvalue()


def crawl(responses: Mapping[str, bytes]) -> list[Record]:
    """Records as a crawler writes them: about the crawl, then request, response and metadata of each page."""
    records = [Record(b"software: test\r\n", "warcinfo", media_type="application/warc-fields")]
    for path, response in responses.items():
        request = f"GET {path} HTTP/1.1\r\nHost: pages.example\r\n\r\n".encode()
        records += [
            Record(request, "request", path, "application/http; msgtype=request"),
            Record(response, "response", path),
            Record(b"fetchTimeMs: 7\r\n", "metadata", path, "application/warc-fields"),
        ]
    return records


def page(text: str) -> bytes:
    """A page with navigation and main content."""
    return (
        "<!DOCTYPE html><html><head><title>Title</title><script>x()</script></head><body>"
        "<nav><ul><li><a href='/'>Home</a></li><li><a href='/about'>About us</a></li></ul></nav>"
        f"<main><article><p>{text}</p></article></main><footer><a href='/terms'>Terms</a></footer></body></html>"
    ).encode()


def write(path: Path, data: bytes) -> Path:
    """Writes a file and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
