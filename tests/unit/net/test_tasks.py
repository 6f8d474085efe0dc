"""A task ends, even if whatever it waits by swallows that it is to end."""

from __future__ import annotations

import asyncio

from concordant.net.tasks import ended


async def test_a_task_that_does_not_hear_at_once_ends() -> None:
    heard: list[str] = []

    async def deaf() -> None:
        for word in ("first", "second"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                heard.append(word)
        await asyncio.Event().wait()

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await ended(task)
    assert heard == ["first", "second"]
    assert task.cancelled()


async def test_what_is_over_or_failed_is_no_matter() -> None:
    async def fail() -> None:
        raise ValueError("it failed before")

    async def done() -> None:
        pass

    tasks = [asyncio.create_task(fail()), asyncio.create_task(done())]
    await asyncio.wait(tasks)
    await ended(*tasks)
    await ended()
