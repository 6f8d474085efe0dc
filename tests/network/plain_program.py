"""A program that knows NATS and JSON, and nothing else; as one of another language would be.

`write URL PREFIX NAME COUNT` publishes and waits for every answer; `read URL SUBJECT COUNT` prints.
"""

import asyncio
import json
import sys

import nats


async def write(url: str, prefix: str, name: str, count: int) -> None:
    client = await nats.connect(url)
    for n in range(count):
        topic = ("Order", "Payment")[n % 2]
        body = json.dumps({"n": n, "source": name, "id": f"{name}-{n}"}).encode()
        answer = json.loads((await client.request(f"{prefix}.{topic}", body, timeout=10)).data)
        assert answer["ok"], answer
    await client.close()


async def read(url: str, subject: str, count: int) -> None:
    client = await nats.connect(url)
    found = await client.subscribe(subject)
    await client.flush()
    print("ready", flush=True)
    for _ in range(count):
        print((await found.next_msg(timeout=30)).data.decode())
    await client.close()


if __name__ == "__main__":
    kind, url, subject, *rest = sys.argv[1:]
    if kind == "write":
        asyncio.run(write(url, subject, rest[0], int(rest[1])))
    else:
        asyncio.run(read(url, subject, int(rest[0])))
    assert not any(name.startswith("concordant") for name in sys.modules)
