"""A page in a headless Chromium, driven by the DevTools protocol as a person uses it."""

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

WAIT_S = 300.0
KEYS = {"ArrowRight": 39, "Enter": 13}


class Page:
    """One tab. Waits are for conditions, as long as a loaded machine may take."""

    def __init__(self, socket_url: str) -> None:
        self.connection = connect(socket_url, max_size=None, open_timeout=WAIT_S)
        self._number = 0
        self.errors: list[str] = []
        """Exceptions, and files that were not loaded"""
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; return its result."""
        self._number += 1
        call = {"id": self._number, "method": method, "params": parameters}
        self.connection.send(json.dumps(call))
        while True:
            message = json.loads(self.connection.recv(timeout=WAIT_S))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            entry = message["params"].get("entry", {})
            is_error = entry.get("level") == "error" and "favicon.ico" not in entry.get("url", "")
            if is_error or message["method"] == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]))

    def see(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, expression: str, seconds: float = WAIT_S) -> Any:
        """Return the value of an expression, once it is true; fail after a time."""
        until = time.monotonic() + seconds
        while not (value := self.see(expression)):
            assert time.monotonic() < until, f"{expression}: {self.see('document.body.innerText')}"
            time.sleep(0.05)
        return value

    def open(self, url: str) -> None:
        self.see("window.isLeft = true")  # a page may change its address at once
        self.send("Page.navigate", url=url)
        self.wait_for("!window.isLeft && document.readyState === 'complete'")

    def press(self, key: str) -> None:
        of = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        typed = {"text": "\r"} if key == "Enter" else {}
        for kind, more in (("keyDown", typed), ("keyUp", {})):
            self.send("Input.dispatchKeyEvent", type=kind, **of, **more)

    def click(self, selector: str) -> None:
        """Click in the middle of an element, scrolled into sight."""
        x, y, width, height = self.box(selector)
        place = {"x": x + width / 2, "y": y + height / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def touch(self, *places: tuple[float, float]) -> None:
        """Touch the screen at a place, move the finger over the others, and lift it."""
        first, *others = [{"x": x, "y": y} for x, y in places]
        self.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[first])
        for place in others:
            self.send("Input.dispatchTouchEvent", type="touchMove", touchPoints=[place])
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def touch_two(self, selector: str, before: float, after: float) -> None:
        """Touch an element with two fingers, and move each from a share of its width to another."""
        x, y, width, height = self.box(selector)
        for kind, away in (("touchStart", before), ("touchMove", after), ("touchEnd", 0.0)):
            places = [x + (0.5 + share) * width for share in (-away, away) if away]
            points = [{"x": each, "y": y + height / 2, "id": n} for n, each in enumerate(places)]
            self.send("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Return x, y, width and height of an element, scrolled into sight."""
        x, y, width, height = self.see(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            " one.scrollIntoView({block: 'center'}); const box = one.getBoundingClientRect();"
            " return [box.x, box.y, box.width, box.height]; })()"
        )
        return x, y, width, height


@contextmanager
def open_page(folder: Path) -> Iterator[Page]:
    """Start a browser whose files are below `folder`, and end it."""
    program = shutil.which("chromium")
    assert program is not None, "chromium is missing: `make test` installs it"
    options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
    place = ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    command = [program, *options.split(), "--window-size=1400,1200", *place]
    nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process, port = subprocess.Popen(command, **nowhere), folder / "DevToolsActivePort"
    try:
        until = time.monotonic() + WAIT_S
        while not (port.exists() and port.read_text().count("\n")):
            assert process.poll() is None and time.monotonic() < until, "chromium does not start"
            time.sleep(0.05)
        url = f"http://127.0.0.1:{port.read_text().split()[0]}/json/new?about:blank"
        request = urllib.request.Request(url, method="PUT")
        with urllib.request.urlopen(request, timeout=WAIT_S) as answered:
            page = Page(json.load(answered)["webSocketDebuggerUrl"])
        with page.connection:
            yield page
    finally:
        process.terminate()
        process.wait(60)
