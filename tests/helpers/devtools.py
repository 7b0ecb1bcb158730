"""A headless Chromium driven through its own pipe: clicks, a phone's screen, lost networks, crashed tabs."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msdc.bench.devices.web.browser import ENGINES

CHROMIUM = ENGINES["chromium"]
ANSWER_S = 600  # only a browser that hangs takes so long
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}

PAINTED = """(() => {
  const brush = document.createElement("canvas").getContext("2d"), found = [];
  const [ground, text] = [document.body, document.querySelector(%s)].map((one) => getComputedStyle(one));
  for (const color of [ground.backgroundColor, text.color]) {
    brush.fillStyle = color;
    brush.fillRect(0, 0, 1, 1);
    found.push([...brush.getImageData(0, 0, 1, 1).data.slice(0, 3)]);
  }
  return found;
})()"""


class Page:
    """One tab."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self.browser, self.session = browser, session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        reply = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait(self, script: str, timeout_s: float = ANSWER_S) -> Any:
        """The expression's value as soon as it is true."""
        end = time.monotonic() + timeout_s
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"still false: {script}; the page: {self.run('document.body.innerText')}"
            time.sleep(0.1)
        return value

    def contrast(self, selector: str) -> float:
        """WCAG's contrast of an element's text with the page's ground, as the browser paints both."""
        self.run("document.body.style.backgroundColor = 'Canvas'")
        lights = []
        for pixel in self.run(PAINTED % json.dumps(selector)):
            linear = [c / 12.92 if (c := part / 255) <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for part in pixel]
            lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
        return (max(lights) + 0.05) / (min(lights) + 0.05)

    def screenshot(self, target: Path, full_page: bool = True) -> Path:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full_page)
        target.write_bytes(base64.b64decode(shot["data"]))
        return target

    def offline(self, lost: bool = True) -> None:
        self.call("Network.enable")
        self.call("Network.emulateNetworkConditions", offline=lost, latency=0, downloadThroughput=-1,
                  uploadThroughput=-1)  # fmt: skip

    def crash(self) -> None:
        """Kill the tab's process; the browser stays."""
        self.browser.send("Page.crash", self.session)


class Browser:
    """A running Chromium with a fresh profile."""

    def __init__(self, process: subprocess.Popen[bytes], requests: int, answers: int) -> None:
        self.process = process
        self._requests, self._answers = requests, answers
        self._number = 0
        self._rest = b""
        self._ended = False
        self._replies: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while block := os.read(self._answers, 1 << 16):
                *messages, self._rest = (self._rest + block).split(b"\0")
                for message in map(json.loads, messages):
                    if "id" in message:
                        with self._arrived:
                            self._replies[message["id"]] = message
                            self._arrived.notify_all()
        self._ended = True
        with self._arrived:
            self._arrived.notify_all()

    def send(self, method: str, session: str | None = None, **parameters: Any) -> int:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        return self._number

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = self.send(method, session, **parameters)
        with self._arrived:
            self._arrived.wait_for(lambda: number in self._replies or self._ended, ANSWER_S)
            assert number in self._replies, f"no answer to {method}; the browser's code: {self.process.poll()}"
            message = self._replies.pop(number)
        assert "error" not in message, f"{method}: {message['error']}"
        return message["result"]

    def open(self, url: str, *, screen: dict[str, Any] = PHONE, slowed: float = 1) -> Page:
        """A tab with the size of a screen, `slowed` times slower than this machine, that has loaded `url`."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        page = Page(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        page.call("Emulation.setDeviceMetricsOverride", **screen)
        if slowed != 1:
            page.call("Emulation.setCPUThrottlingRate", rate=slowed)
        page.call("Page.navigate", url=url)
        page.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        return page


@contextlib.contextmanager
def chromium(*options: str, before: tuple[str, ...] = ()) -> Iterator[Browser]:
    """A browser with `options`, such as rules for made-up host names; it and its children end with the block.

    `before`: a command that starts it, such as nsenter.
    """
    with tempfile.TemporaryDirectory(prefix="msdc-devtools-", ignore_cleanup_errors=True) as profile:
        in_read, in_write = os.pipe()
        out_read, out_write = os.pipe()
        # The browser reads descriptor 3 and writes 4; dash knows no descriptors of two digits.
        started = CHROMIUM.command(Path(profile), *options, "--remote-debugging-pipe")
        command = ["bash", "-c", f'exec "$@" 3<&{in_read} 4>&{out_write}', "bash", *before, *started]
        with open(Path(profile) / "output.txt", "wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       pass_fds=(in_read, out_write), start_new_session=True)  # fmt: skip
        os.close(in_read)
        os.close(out_write)
        try:
            yield Browser(process, in_write, out_read)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(in_write)
