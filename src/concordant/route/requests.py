"""What an application asks of a client of the overlay.

Names are the application's own, one for each advertisement and one for each subscription that is
open; the client gives each its id.
"""

from __future__ import annotations

import msgspec

from concordant.machine import requests
from concordant.route.filter import Filter


class Publish(requests.Publish, frozen=True, tag=True):
    """Publish an event; without a time, the driver's clock gives one."""

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.attributes.items())
        return f"publish {self.topic}({values})"


class Advertise(msgspec.Struct, frozen=True, tag=True):
    """Say which events will be published."""

    name: str
    filter: Filter

    def __str__(self) -> str:
        return f"advertise {self.name} ({self.filter})"


class Unadvertise(msgspec.Struct, frozen=True, tag=True):
    name: str

    def __str__(self) -> str:
        return f"unadvertise {self.name}"


class Subscribe(msgspec.Struct, frozen=True, tag=True):
    """Want events."""

    name: str
    filter: Filter

    def __str__(self) -> str:
        return f"subscribe {self.name} ({self.filter})"


class Unsubscribe(msgspec.Struct, frozen=True, tag=True):
    name: str

    def __str__(self) -> str:
        return f"unsubscribe {self.name}"


Change = Advertise | Unadvertise | Subscribe | Unsubscribe
Asked = Change | Publish
