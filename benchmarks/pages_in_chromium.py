"""HTML pages that peref writes, in headless Chromium at 1280 and 400 pixels, in light and in dark: does the
console stay silent, is nothing requested, does the page fit, has each picture a text alternative?

    python benchmarks/pages_in_chromium.py comparison/report.html --chromium chromium -o screenshots

It writes a screenshot of each, for somebody to look at. Exit code 1 where something is not so. It needs
Chromium, and tornado, which the extra cluster brings. Not here: what stands on the pages
(tests/test_compare.py, tests/test_run_report.py).
"""

import argparse
import asyncio
import base64
import itertools
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tornado.websocket import websocket_connect

WIDTHS, SCHEMES = (1280, 400), ("light", "dark")
ASKED = "Network.requestWillBeSent"
SAID = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
FACTS = """JSON.stringify({
  wide: document.documentElement.scrollWidth, room: document.documentElement.clientWidth,
  high: document.documentElement.scrollHeight, ready: document.readyState,
  bad: [...document.images].filter(image => !image.alt || !image.naturalWidth).length})"""


class Browser:
    """Chromium's first page, by the protocol of its developer tools."""

    def __init__(self, socket: Any) -> None:
        self.socket, self.events, self.numbers = socket, [], itertools.count(1)

    async def call(self, method: str, **given: Any) -> dict[str, Any]:
        number = next(self.numbers)
        await self.socket.write_message(json.dumps({"id": number, "method": method, "params": given}))
        while (found := json.loads(await self.socket.read_message())).get("id") != number:
            self.events.append(found)
        return found["result"]

    async def facts(self) -> dict[str, Any]:
        found = await self.call("Runtime.evaluate", expression=FACTS)
        return json.loads(found["result"]["value"])


async def look(browser: Browser, page: Path, width: int, scheme: str, picture: Path) -> list[str]:
    """What is wrong with a page."""
    browser.events.clear()
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    await browser.call("Emulation.setDeviceMetricsOverride", **screen)
    preferred = [{"name": "prefers-color-scheme", "value": scheme}]
    await browser.call("Emulation.setEmulatedMedia", features=preferred)
    await browser.call("Page.navigate", url=page.resolve().as_uri())
    await asyncio.sleep(1)
    while (facts := await browser.facts())["ready"] != "complete":
        await asyncio.sleep(0.1)
    whole = {"x": 0, "y": 0, "width": width, "height": facts["high"], "scale": 1}
    shot = await browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=whole)
    picture.write_bytes(base64.b64decode(shot["data"]))
    asked = [e["params"]["request"]["url"] for e in browser.events if e["method"] == ASKED][1:]
    wrong = [f"requests {url[:80]}" for url in asked if not url.startswith("data:")]
    wrong += [f"says {json.dumps(e['params'])[:200]}" for e in browser.events if e["method"] in SAID]
    if facts["wide"] > facts["room"]:
        wrong.append(f"is {facts['wide']} wide in {facts['room']}")
    if facts["bad"]:
        wrong.append(f"has {facts['bad']} pictures that are not shown or have no words")
    return wrong


async def looked_at(port: int, pages: list[Path], folder: Path) -> int:
    """How many times something was wrong."""
    found = None
    while found is None:
        try:
            found = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
        except OSError:
            time.sleep(0.2)
    (first,) = (one["webSocketDebuggerUrl"] for one in found if one["type"] == "page")
    browser, count = Browser(await websocket_connect(first, max_message_size=1 << 28)), 0
    for room in ("Page", "Network", "Runtime", "Log"):
        await browser.call(f"{room}.enable")
    for (n, page), width, scheme in itertools.product(enumerate(pages), WIDTHS, SCHEMES):
        picture = folder / f"{n}-{page.stem}-{width}-{scheme}.png"
        wrong = await look(browser, page, width, scheme, picture)
        print(f"{picture}: {'; '.join(wrong) or 'right'}", flush=True)
        count += bool(wrong)
    return count


def main() -> int:
    """All pages; returns the exit code."""
    parser = argparse.ArgumentParser(description="pages of peref in headless Chromium")
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--chromium", default="chromium", help="the program")
    parser.add_argument("--port", type=int, default=9333, help="for the developer tools")
    parser.add_argument("-o", "--output", type=Path, default=Path("screenshots"))
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        how = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        argv = [asked.chromium, *how, f"--remote-debugging-port={asked.port}", "about:blank"]
        browser = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return int(asyncio.run(looked_at(asked.port, asked.pages, asked.output)) > 0)
        finally:
            browser.terminate()
            browser.wait()


if __name__ == "__main__":
    sys.exit(main())
