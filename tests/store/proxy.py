"""A TCP proxy in front of the S3 server that can be slow, refuse, or cut connections in the midst of a request."""

from __future__ import annotations

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
    cut_after: int | None = None
    """Bytes from the client after which everything is cut, once and for all until it is set to None"""
    seen: int = 0
    """Bytes from the client so far"""
    _open: list[socket.socket] = field(default_factory=list)

    def refuse(self) -> None:
        """From now on nobody gets through."""
        self.refusing = True
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def heal(self) -> None:
        """From now on everything passes."""
        self.refusing, self.cut_after, self.delay_s = False, None, 0.0

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
                    continue
                parts = urlsplit(self.target)
                upstream = socket.create_connection((parts.hostname, parts.port))
                self._open += [client, upstream]
                threading.Thread(target=self._pass, args=(client, upstream, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(upstream, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, from_client: bool) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(65536):
                time.sleep(self.delay_s)
                if from_client:
                    self.seen += len(block)
                    if self.cut_after is not None and self.seen > self.cut_after:
                        self.refuse()
                        return
                sink.sendall(block)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
