"""A headless Chromium, driven over its debugging protocol on a pair of pipes: no package but Python is needed."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]


def program() -> str | None:
    """The path of a Chromium, if there is one."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One page. `complaints` are its errors, `requests` the addresses that it asked for."""

    def __init__(self, width: int, height: int):
        self.profile = tempfile.mkdtemp()
        # The browser reads commands from descriptor 3 and writes answers to descriptor 4.
        commands, to = os.pipe()
        back, answers = os.pipe()
        arguments = [
            "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--no-first-run", "--disable-dev-shm-usage", f"--user-data-dir={self.profile}",
            f"--window-size={width},{height}", "about:blank",
        ]

        def descriptors():
            # Out of the way first: one of them could be 3 or 4 itself.
            high = [os.dup2(fd, 100 + fd) for fd in (commands, answers)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program(), *arguments], preexec_fn=descriptors, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self.to, self.back = to, back
        self.rest, self.number, self.session = b"", 0, None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def call(self, method: str, **parameters):
        """Sends a command and waits for its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            message = self.read()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.event(message.get("method"), message.get("params", {}))

    def read(self):
        while b"\0" not in self.rest:
            piece = os.read(self.back, 1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def event(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def open(self, url: str):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'", 20)

    def evaluate(self, script: str):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, script: str, seconds: float):
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(script):
            if time.monotonic() > end:
                raise AssertionError(f"still not so after {seconds} s: {script}\n{self.evaluate('document.body.innerText')}")
            time.sleep(0.02)

    def type(self, text: str):
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int, **more):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" and not more else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text, **more)

    def click(self, selector: str):
        """Clicks in the middle of an element, as a mouse does."""
        box = f"(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector({selector!r}).getBoundingClientRect())"
        x, y = self.evaluate(box)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: str):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
