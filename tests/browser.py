"""A headless Chromium driven over its DevTools pipe: no driver, no web socket, no network.

`Browser` starts one process; `page()` opens a file and records console messages, exceptions and requests.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


class BrowserError(Exception):
    """The page raised, or the browser did not answer."""


class Browser:
    """One headless Chromium; use as a context manager."""

    def __init__(self, timeout_s: float = 60.0) -> None:
        if CHROMIUM is None:
            raise BrowserError("no Chromium on PATH")
        self._timeout_s = timeout_s
        self._profile = tempfile.TemporaryDirectory(prefix="cgadvisor-browser-", ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser expects its ends at 3 and 4: move them out of the way first, since either may be there already.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_browser, from_browser)]
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars",
            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--force-device-scale-factor=1", f"--user-data-dir={self._profile.name}", "about:blank",
        ]  # fmt: skip
        script = f'exec 3<&{ends[0]} 4>&{ends[1]}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (to_browser, from_browser, *ends):
            os.close(fd)
        self._buffer = b""
        self._next_id = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrowserError, OSError):
            self.call("Browser.close")
        os.close(self._write)
        os.close(self._read)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """One DevTools command; its result. Events that arrive meanwhile go to `events`."""
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        wanted = self._next_id
        while True:
            answer = self._receive(self._timeout_s)
            if answer.get("id") == wanted:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def drain(self, seconds: float) -> None:
        """Collect events for a while."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                self.events.append(self._receive(left))
            except BrowserError:
                return

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], timeout_s)
            chunk = os.read(self._read, 1 << 20) if ready else b""
            if not chunk:
                raise BrowserError("the browser did not answer")
            self._buffer += chunk
        text, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(text)

    def page(self, path: Path, *, width: int = 1440, height: int = 900, dark: bool = False) -> Page:
        """Open a file and wait for its load event."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.events.clear()
        page.call("Page.navigate", url=path.resolve().as_uri())
        page.wait("document.readyState === 'complete' && location.protocol === 'file:'")
        return page


class Page:
    """One open tab."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression (awaited). Raises BrowserError when it throws."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        """Until a JavaScript condition holds. Raises BrowserError when it does not in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run(condition):
                return
            time.sleep(0.05)
        raise BrowserError(f"never became true: {condition}")

    def mouse(self, kind: str, x: float, y: float, **other: Any) -> None:
        """A mouse event at viewport coordinates: mouseMoved, mousePressed, mouseReleased, mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **other)

    def click(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def problems(self) -> list[str]:
        """Console errors and warnings, uncaught exceptions, policy violations seen so far."""
        self._browser.drain(0.2)
        found = []
        for event in self._browser.events:
            params = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
                case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                    found.append(str([one.get("value", one.get("description")) for one in params["args"]]))
                case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                    found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Addresses the page asked for, its own apart."""
        self._browser.drain(0.2)
        sent = [
            e["params"]["request"]["url"]
            for e in self._browser.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in sent[1:] if not url.startswith(("data:", "blob:"))]

    def screenshot(self, path: Path, *, full: bool = True) -> None:
        """A PNG of the whole page or of the first screen."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full, **self._clip(full))
        path.write_bytes(base64.b64decode(answer["data"]))

    def _clip(self, full: bool) -> dict[str, Any]:
        if not full:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12_000), "scale": 1}}
