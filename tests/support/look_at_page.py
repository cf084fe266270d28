#!/usr/bin/env python3
"""look_at_page.py BROWSER PAGE [FOLDER [COMMAND CONDITION]]: opens a page, a file or the URL of `lockstep serve`, in a headless Chromium at the widths of a phone and of a desktop,
light and dark, with and without scripts. The page of a run that trains must change while it is open. Fails if the console has an error, if something is fetched from elsewhere, or if
the page must be scrolled sideways, a table is cut off without a sign, or a picture glares in the dark. Leaves pictures in FOLDER. COMMAND is run while the page is open; CONDITION, a
JavaScript expression, must then become true. In the dark, reading the session storage throws. It talks to the browser over pipes."""
import base64
import json
import os
import subprocess
import sys
import tempfile
import time

browser, page = sys.argv[1], sys.argv[2]
is_served = page.startswith("http://")
if not is_served:
    page = "file://" + os.path.abspath(page)
# A server gives more than the page: its style, script and events.
own = "/".join(page.split("/")[:3]) + "/" if is_served else page
folder = sys.argv[3] if len(sys.argv) > 3 else None
command, condition = sys.argv[4:6] if len(sys.argv) > 5 else (None, None)


class Browser:
    def __init__(self, profile):
        to_read, self.to_write = os.pipe()
        self.to_hear, to_say = os.pipe()
        arguments = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--hide-scrollbars=false", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]

        def wire():  # the browser reads descriptor 3 and writes descriptor 4
            first, second = os.dup(to_read), os.dup(to_say)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(arguments, preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_say)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None

    def receive(self):
        while b"\0" not in self.buffer:
            data = os.read(self.to_hear, 1 << 20)
            if not data:
                sys.exit("the browser ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        answer = json.loads(message)
        if answer.get("method") == "Page.javascriptDialogOpening":
            sys.exit("a script of the page's texts runs: " + json.dumps(answer["params"]))
        return answer

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, expression):
        return self.call("Runtime.evaluate", returnByValue=True, expression=expression)["result"].get("value")

    def wait_for(self, event):
        while not any(e.get("method") == event for e in self.events):
            self.events.append(self.receive())


def problems(events):
    for event in events:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            yield "exception: " + json.dumps(params["exceptionDetails"])[:400]
        elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            yield "console: " + json.dumps(params["args"])[:400]
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            yield "log: " + json.dumps(params["entry"])[:400]
        elif event.get("method") == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith("data:") and not (url.startswith(own) if is_served else url == own):
                yield "fetches " + url[:200]


SIDEWAYS = """(() => { const d = document.documentElement, wide = [];
  if (d.scrollWidth > d.clientWidth) for (const e of document.querySelectorAll('body *'))
    if (e.getBoundingClientRect().right > d.clientWidth + 1) wide.push(e.tagName + '.' + e.className);
  return d.scrollWidth > d.clientWidth ? d.scrollWidth + ' > ' + d.clientWidth + ': ' + wide.slice(0, 5) : ''; })()"""

# Tables that are cut off must show it by a shadow, and pictures on white must not glare at night.
UNMARKED = """[...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth &&
  !getComputedStyle(e).backgroundAttachment.includes('local'))"""
GLARING = "[...document.querySelectorAll('img')].some(e => getComputedStyle(e).filter == 'none')"

# As a browser does that blocks cookies.
NO_STORAGE = """if (matchMedia('(prefers-color-scheme:dark)').matches) Object.defineProperty(window, 'sessionStorage',
  {get() { throw new DOMException('Access is denied for this document.', 'SecurityError'); }});"""

# The words about the last step, on the page of a run that trains.
NOW = "(document.querySelector('.now') || {textContent: null}).textContent"

with tempfile.TemporaryDirectory() as profile:
    b = Browser(profile)
    failed = []
    try:
        target = b.call("Target.createTarget", url="about:blank")["targetId"]
        b.session = b.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            b.call(domain + ".enable")
        b.call("Page.addScriptToEvaluateOnNewDocument", source=NO_STORAGE)
        changed = not is_served
        for width, height in ((390, 844), (1280, 800)):
            for theme in ("light", "dark"):
                for scripts in (True, False):
                    name = f"{width}-{theme}" + ("" if scripts else "-without-script")
                    b.call("Emulation.setScriptExecutionDisabled", value=not scripts)
                    b.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                           mobile=width < 600)
                    b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
                    b.events = []
                    b.call("Page.navigate", url=page)
                    b.wait_for("Page.loadEventFired")
                    if scripts and not changed:
                        now = b.evaluate(NOW)
                        changed = now is None
                        for _ in range(600):
                            if changed or b.evaluate(NOW) != now:
                                changed = True
                                break
                            time.sleep(0.1)
                        if not changed:
                            failed.append(f"{name}: the page of a run that trains does not change")
                    if scripts and command:
                        if b.evaluate(condition):
                            failed.append(f"{name}: is true before the command: {condition}")
                        subprocess.run(["bash", "-c", command], check=True)
                        for _ in range(600):
                            if b.evaluate(condition):
                                break
                            time.sleep(0.1)
                        else:
                            failed.append(f"{name}: does not become true: {condition}")
                        command = None
                    if scripts:
                        for _ in range(50):  # a page that follows a run may be drawn anew under the pointer
                            box = b.evaluate("""(() => {
                                const s = [...document.querySelectorAll('.chart svg')].find(s => s.clientWidth);
                                if (!s) return null; s.scrollIntoView(); const r = s.getBoundingClientRect();
                                return [r.left + r.width / 2, r.top + r.height / 2]; })()""")
                            if not box:
                                break
                            b.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
                            tip = b.evaluate("""[...document.querySelectorAll('.tip')].map(t => t.style.display == 'block' ?
                                t.textContent : '').join('')""")
                            if tip:
                                break
                            time.sleep(0.1)
                        else:
                            failed.append(f"{name}: no value is shown under the pointer")
                        is_list = is_served and b.evaluate("!!document.querySelector('table.runs a')")
                        if not box and not is_list:  # the list of runs has no chart
                            failed.append(f"{name}: no chart is shown")
                        if b.evaluate("!!document.getElementById('injected')"):
                            failed.append(f"{name}: a text of the run became an element")
                    size = b.call("Page.getLayoutMetrics")["cssContentSize"]
                    if scripts:
                        sideways = b.evaluate(SIDEWAYS)
                        if sideways:
                            failed.append(f"{name}: scrolls sideways: {sideways}")
                        if b.evaluate(UNMARKED):
                            failed.append(f"{name}: a table is cut off without a sign")
                        if theme == "dark" and b.evaluate(GLARING):
                            failed.append(f"{name}: a picture glares")
                    elif size["width"] > width:
                        failed.append(f"{name}: is {size['width']} pixels wide")
                    failed += [f"{name}: {problem}" for problem in problems(b.events)]
                    if folder and scripts:
                        picture = b.call("Page.captureScreenshot", captureBeyondViewport=True,
                                         clip={"x": 0, "y": 0, "width": width, "height": min(size["height"], 12000),
                                               "scale": 1})
                        with open(f"{folder}/{name}.png", "wb") as file:
                            file.write(base64.b64decode(picture["data"]))
    finally:
        b.process.kill()
        b.process.wait()
for line in failed:
    print(line)
sys.exit(bool(failed))
