"""Add deadlines and bounds to uvicorn's HTTP protocol.

Deadlines close silent, slow and unread connections; uvicorn itself closes idle ones only after
their first answer. Bounds end requests whose headers, or what surrounds the parts of a body, grow
without end; the body itself is bounded by `BodyLimit`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADER_BYTES = 65_536
MAX_FRAME_SHARE = 0.25
"""Of a body sent in parts: bytes that announce its parts, over those of the body"""


class DeadlineProtocol(HttpToolsProtocol):
    """Close connections that miss a deadline.

    Headers must arrive within HEADERS_S of the connection or the last answer's end, the body within
    BODY_S of them, the answer must be ready within ANSWER_S of the body, and the client must take
    what is written within ANSWER_S too.
    """

    HEADERS_S = 10.0
    BODY_S = 60.0
    ANSWER_S = 180.0

    #: Bytes of answers that wait in memory for the client before writing pauses.
    MOST_UNREAD = 65_536

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    """Of the client that is to take what was written; uvicorn takes that for sent"""
    _in_headers = True
    """True until headers are complete; after a body the next bytes are headers again"""
    _received = 0
    """Bytes of this request so far"""
    _delivered = 0
    """Of them, those that were its body"""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Writing goes on when the client has taken everything.
        transport.set_write_buffer_limits(high=self.MOST_UNREAD, low=0)
        self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        self._was_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deadline is None:  # the next request on a connection that is kept
            self._expect_more()
        self._received += len(data)
        super().data_received(data)
        if self._in_headers and self._received > MAX_HEADER_BYTES:
            self._refuse(431, f"the headers have more than {MAX_HEADER_BYTES} bytes")
        # Trailers, and what else stands around the parts of a body, are kept like headers.
        around = self._received - self._delivered - MAX_FRAME_SHARE * self._delivered
        if not self._in_headers and around > 2 * MAX_HEADER_BYTES:
            self._refuse_unless_begun(
                431, f"headers and trailers have more than {2 * MAX_HEADER_BYTES} bytes"
            )

    def on_body(self, body: bytes) -> None:
        self._delivered += len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_headers = False
        self._expect_more()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_headers, self._received, self._delivered = True, 0, 0
        self._cancel()
        if not self.cycle.response_complete:
            self._deadline = self.loop.call_later(self.ANSWER_S, self._abort)

    def on_response_complete(self) -> None:
        self._cancel()
        if not self._in_headers:  # refused before its body had come
            self._expect_more()
        if self.transport.get_write_buffer_size() and not self.flow.write_paused:
            self._expect_reading()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        self._was_read()
        super().resume_writing()

    def _expect_reading(self) -> None:
        self._was_read()
        self._unread = self.loop.call_later(self.ANSWER_S, self._abort_unread)

    def _was_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _abort_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self._abort()

    def _expect_more(self) -> None:
        self._cancel()
        what, seconds = ("headers", self.HEADERS_S) if self._in_headers else ("body", self.BODY_S)
        self._deadline = self.loop.call_later(seconds, self._late, what, seconds)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self, what: str, seconds: float) -> None:
        detail = f"the {what} of a request did not arrive within {seconds:g} s"
        if what == "body":
            self._refuse_unless_begun(408, detail)
        else:
            self._refuse(408, detail)

    def _refuse_unless_begun(self, status: int, detail: str) -> None:
        """Refuse a request during its body; one whose answer has begun can only be cut off."""
        if self.cycle.response_started:
            self._abort()
        else:
            self._refuse(status, detail)

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _refuse(self, status: int, detail: str) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        body = json.dumps({"detail": detail}).encode()
        lines: list[Any] = [
            f"HTTP/1.1 {status} Refused",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()
        # A client that does not read does not keep the connection open.
        self.loop.call_later(1.0, self.transport.abort)
