"""What a phone says about itself and its browser. All of it is claimed; what is not told stays unknown."""

from __future__ import annotations

import re

from pydantic import Field

from msdc.bench.devices.browser.answer import PageAnswer, Part
from msdc.bench.devices.browser.measurement import Browser
from msdc.bench.result import DeviceInfo, DeviceState
from msdc.errors import printable

LONGEST_NAME = 60
# Engine -> its title and where its version stands in a browser's identification. On iOS every browser is WebKit.
AGENTS = (
    ("firefox", "Firefox", r"\bFirefox/([\d.]+)"),
    ("chromium", "Chromium", r"\b(?:Headless)?Chrom(?:e|ium)/([\d.]+)"),
    ("webkit", "WebKit", r"\bAppleWebKit/(?:.*\bVersion/([\d.]+))?"),
)
SYSTEMS = (
    ("iPhone", "iPhone", "iOS"),
    ("iPad", "iPad", "iPadOS"),
    ("Android", "Android device", "Android"),
    ("Windows", "Windows computer", "Windows"),
    ("Macintosh", "Mac or iPad", ""),  # iPads pass themselves off as Macs
    ("CrOS", "Chromebook", "ChromeOS"),
    ("Linux", "Linux device", "Linux"),
)
Text = Field(default=None, max_length=100)


class Hints(Part):
    """`navigator.userAgentData`, which Chromium has on https and localhost only."""

    model: str | None = Text
    platform: str | None = Text
    platform_version: str | None = Text
    version: str | None = Text


class Battery(Part):
    """`navigator.getBattery()`, which Chromium has on https and localhost only."""

    percent: float = Field(ge=0, le=100)
    charging: bool


class LinkAnswer(PageAnswer):
    """The answer of a phone's page."""

    name: str = Field(max_length=1000)
    hints: Hints | None
    battery_before: Battery | None
    battery_after: Battery | None


def plain(text: str, longest: int = LONGEST_NAME) -> str:
    """One line without control characters, of at most `longest` characters."""
    return " ".join(printable(text).split())[:longest].strip()


def browser_of(answer: LinkAnswer) -> tuple[Browser, str | None]:
    """The browser, and its title; None for an engine that is not known."""
    for engine, title, pattern in AGENTS:
        found = re.search(pattern, answer.page.agent)
        if found:
            version = (answer.hints.version if answer.hints else None) or found[1]
            # Chromium says 156.0.0.0 whatever the rest of its version is.
            known = re.sub(r"(\.0)+$", "", plain(version)) if version else None
            return Browser(engine, known), title
    return Browser("unknown"), None


def device_of(answer: LinkAnswer, kind: str) -> DeviceInfo:
    """The device: as its owner calls it, or what its browser says it is."""
    agent, hints = answer.page.agent, answer.hints or Hints()
    usual, system = next(((name, system) for word, name, system in SYSTEMS if word in agent), ("device", ""))
    if hints.platform:
        system = plain(f"{hints.platform} {hints.platform_version or ''}")
    browser, title = browser_of(answer)
    number = re.match(r"\d+", browser.version or "")
    name = plain(answer.name) or plain(hints.model or "") or usual
    return DeviceInfo(
        name=name + (f", {title}" if title else "") + (f" {number.group()}" if number else ""),
        kind=kind,
        cores=None,
        memory_mib=None,
        os=system,
    )


def state_of(battery: Battery | None) -> DeviceState | None:
    """The battery's state, None where unknown."""
    return DeviceState(battery_percent=battery.percent, charging=battery.charging) if battery else None
