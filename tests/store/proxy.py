"""A TCP proxy in front of the S3 server that can be slow, refuse, or cut connections."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Proxy:
    """Behaviour may be changed while it runs."""

    target: str
    delay_s: float = 0.0
    """Before each block that is passed on, either way"""
    refusing: bool = False
    """Connections are closed at once, and open ones cut"""
    cut_bodies_after: int | None = None
    """Bytes from the server after which its connection is cut, for as long as this is set"""
    answering: str | None = None
    """Status line, such as `503 Slow Down`, that every request gets in place of an answer"""
    _open: list[socket.socket] = field(default_factory=list)

    def refuse(self) -> None:
        """From now on nobody gets through."""
        self.refusing = True
        self.cut()

    def answer(self, status: str) -> None:
        """From now on every request, on connections that are open as well, is answered so."""
        self.answering = status
        self.cut()

    def cut(self) -> None:
        """Cut all connections that are open."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def heal(self) -> None:
        """From now on everything passes."""
        self.refusing, self.delay_s = False, 0.0
        self.cut_bodies_after, self.answering = None, None

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """The endpoint, while the proxy runs."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=self._accept, args=(server,), daemon=True).start()
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
            self.refuse()

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                if self.refusing:
                    client.close()
                elif self.answering:
                    threading.Thread(target=_answer, args=(client, self.answering)).start()
                else:
                    self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        parts = urlsplit(self.target)
        try:
            upstream = socket.create_connection((parts.hostname, parts.port))
        except OSError:  # the server is away
            client.close()
            return
        self._open += [client, upstream]
        for ends in ((client, upstream, True), (upstream, client, False)):
            threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, from_client: bool) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while block := source.recv(65536):
                time.sleep(self.delay_s)
                limit = None if from_client else self.cut_bodies_after
                if limit is not None and passed + len(block) > limit:
                    sink.sendall(block[: max(0, limit - passed)])
                    break
                passed += len(block)
                sink.sendall(block)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _answer(client: socket.socket, status: str) -> None:
    """Read a request to its end and answer it as an overloaded or broken S3 does."""
    code = status.partition(" ")[2].replace(" ", "")
    body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    lines = (f"HTTP/1.1 {status}", "Content-Type: application/xml", "Connection: close")
    head = "\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode()
    with client, contextlib.suppress(OSError):
        client.settimeout(2.0)
        request = client.recv(65536)
        client.sendall(head + body)
        client.shutdown(socket.SHUT_WR)
        # Closing with bytes unread would reset the connection, and take the answer along.
        while request:
            request = client.recv(65536)
