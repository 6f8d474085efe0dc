"""Tasks that are no longer wanted."""

from __future__ import annotations

import asyncio
from typing import Any


async def ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for them; more than once, because `asyncio.wait_for`, which nats-py
    uses wherever it waits for the server, may swallow the word."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.1)
    await asyncio.gather(*tasks, return_exceptions=True)
