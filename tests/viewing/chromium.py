"""A headless Chromium, spoken to over its debugging pipe with the standard library only.

Pages are loaded from files; what they say on the console, ask of the network, or throw, is kept.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)


class Chromium:
    """One browser with one page; ends with the context.

    Attributes:
        trouble: Console errors, exceptions, and requests for anything but the file itself.
    """

    def __init__(self) -> None:
        found = shutil.which("chromium") or shutil.which("chromium-browser")
        assert found, "Debian's package `chromium` must be installed"
        self._profile = tempfile.TemporaryDirectory(
            prefix="fulfil-chromium-", ignore_cleanup_errors=True
        )
        (reads, self._to), (self._from, writes) = os.pipe(), os.pipe()
        # The browser reads from descriptor 3 and writes to 4; ours must not be among them.
        theirs = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (reads, writes)]
        script = f'exec "$0" "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, found, *FLAGS, f"--user-data-dir={self._profile.name}"],
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for one in (reads, writes, *theirs):
            os.close(one)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.trouble: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, width: int, *, dark: bool = False, media: str = "screen") -> None:
        """Load a page at a width, and wait until it is loaded."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._loaded = False
        self.trouble.clear()
        self._call("Page.navigate", url=path.absolute().as_uri())
        while not self._loaded:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; JSON."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press a key, such as Tab (9) or Enter (13)."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text,
            )  # fmt: skip

    def accessible(self) -> list[tuple[str, str]]:
        """Role and name of everything that a screen reader meets, in order."""
        nodes = self._call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def screenshot(self, height: int | None = None) -> bytes:
        """The page as a PNG: the whole of it, or so many pixels from its top."""
        options: dict[str, Any] = {"format": "png", "captureBeyondViewport": True}
        if height is not None:
            width = self.evaluate("innerWidth")
            options["clip"] = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        answer = self._call("Page.captureScreenshot", **options)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"])

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._from, 1 << 16)
            assert part, "the browser ended"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, about: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.trouble.append(json.dumps(about["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.trouble.append(json.dumps(about["args"]))
        elif method == "Log.entryAdded":
            self.trouble.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = about["request"]["url"]
            if not url.startswith(("file:", "data:")):
                self.trouble.append(f"asked for {url}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()
