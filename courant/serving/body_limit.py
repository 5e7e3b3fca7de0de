"""Bound request bodies by ASGI middleware: each one, and all in memory at the same time."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGI = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

RETRY_AFTER_S = 5


class BodyLimit:
    """Reject requests that would exceed a bound, before anything parses them.

    Answers 413 where a body has more than `max_bytes`; 503 where the bodies of all waiting or
    active requests would exceed `max_held_bytes`, or their number `max_requests`.
    """

    def __init__(self, app: ASGI, max_bytes: int, max_held_bytes: int, max_requests: int) -> None:
        self.app, self.max_bytes = app, max_bytes
        self.max_held_bytes, self.max_requests = max_held_bytes, max_requests
        self._held_bytes = self._requests = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        if scope["type"] != "http" or (scope["method"] in ("GET", "HEAD") and not has_body):
            await self.app(scope, receive, send)
            return
        if self._requests >= self.max_requests:
            await self._busy(send)
            return
        self._requests += 1
        body = bytearray()
        try:
            if await self._take_in(body, scope, receive, send):
                await self.app(scope, _replay(bytes(body), receive), send)
        finally:
            self._requests -= 1
            self._held_bytes -= len(body)

    async def _take_in(
        self, body: bytearray, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> bool:
        """Read the whole body; False where the request has been answered or its client has gone."""
        length = dict(scope["headers"]).get(b"content-length", b"0")
        # Python reads no number of thousands of digits.
        announced = int(length.lstrip(b"0")[:20] or b"0") if length.isdigit() else -1
        if not 0 <= announced <= self.max_bytes:
            await self._too_large(send)
            return False
        if self._held_bytes + announced > self.max_held_bytes:
            await self._busy(send)
            return False
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":  # the client has gone
                return False
            part, more = message.get("body", b""), message.get("more_body", False)
            body += part
            self._held_bytes += len(part)
            if len(body) > self.max_bytes:
                await self._too_large(send)
                return False
            if self._held_bytes > self.max_held_bytes:
                await self._busy(send)
                return False
        return True

    async def _too_large(self, send: Send) -> None:
        detail = (
            f"the request has more than {self.max_bytes / 1e6:g} MB,"
            " which this server takes at most"
        )
        await _answer(send, 413, detail)

    async def _busy(self, send: Send) -> None:
        await _answer(
            send, 503, f"too many requests wait to be answered; try again in {RETRY_AFTER_S} s"
        )


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _answer(send: Send, status: int, detail: str) -> None:
    headers = [(b"content-type", b"application/json")]
    if status == 503:
        headers.append((b"retry-after", str(RETRY_AFTER_S).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"detail": detail}).encode()})
