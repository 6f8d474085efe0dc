"""Frames made to do harm: good ones of both doors of a node, mutated from a seed, and sent.

An attacker here knows the protocols and the secrets: it greets as a member or as an application, so
that what follows is read. Frames are broken as a whole, in the parcels inside, and in the messages
inside those. Every connection must come to an end by itself, answered or closed.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec

from concordant.model.event import Event
from concordant.net import link, session
from concordant.net.carrier import Carried, Heard, Listens, Spread
from concordant.net.flow import Held
from concordant.net.roles import STRATEGIES, message_kinds
from concordant.order.broadcast.sequencer import Acknowledged
from concordant.order.streams import Ask, Gone, Mark, Numbered
from concordant.wire.messages import Codec

HOST = "127.0.0.1"
TOKEN = "members"
APPLICATIONS = "applications"
MEMBER = "n2"
CLUSTER = """
[cluster]
name = "fuzzed"
strategies = ["none", "sequencer"]
[placed]
"sequencer/sequencer" = "n1"
[credentials]
nodes = "members"
applications = "applications"
[limits]
sessions_max = 100
[nodes.n1]
address = "127.0.0.1:{address}"
door = "127.0.0.1:{door}"
http = "127.0.0.1:{http}"
[nodes.n2]
address = "127.0.0.1:1"
door = "127.0.0.1:2"
"""
"""One node runs; the other is the attacker."""

_CLOSED_S = 15.0
_CODEC = Codec((*message_kinds(STRATEGIES.values()), Held))
_encode = msgspec.msgpack.Encoder().encode
_EXTREMES = [
    b"\xcf" + b"\xff" * 8,
    b"\xd3\x80" + bytes(7),
    b"\xdb\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\x91" * 3_000,
    b"\xcb\x7f\xf8" + bytes(6),
    b"\xc0",
    b"\xc1",
]


def mutated(rng: Random, data: bytes) -> bytes:
    """The bytes with a few things wrong."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randint(0, len(found))
        match rng.randrange(6):
            case 0 if found:
                found[place % len(found)] = rng.randrange(256)
            case 1:
                del found[place : place + rng.randint(1, 8)]
            case 2:
                found[place:place] = found[place : place + rng.randint(1, 40)]
            case 3:
                found[place:place] = rng.choice(_EXTREMES)
            case 4:
                found[place : place + 1] = rng.choice(_EXTREMES)
            case 5:
                del found[place:]
    return bytes(found)


def _messages(rng: Random) -> bytes:
    """Messages of the protocols, as a member may send them."""
    number = rng.choice([-1, 0, 1, 2, 10_000, 2**63 - 1])
    stream = (f"n2/{rng.choice(['fifo', 'sequencer', 'x' * rng.randint(0, 50)])}", "A")
    event = Event("A", "s", number, number, {"x": rng.choice([1, 0.5, "t", True, None])})
    kinds = [
        Numbered(stream, number, event),
        Mark(stream, number, number),
        Ask(stream, rng.choice([1, number]), number),
        Gone(stream, number),
        Acknowledged(number),
        Held(("A",)),
    ]
    return _CODEC.encode([rng.choice(kinds) for _ in range(rng.choice([1, 3, 8]))])


def _parcel(rng: Random) -> bytes:
    body = _messages(rng)
    if rng.random() < 0.5:
        body = mutated(rng, body)
    to = rng.choice(["n1/fifo", "n1/sequencer", "n1/sequencer/sequencer", "n1/flow", "n1/none"])
    kinds = [
        Carried("n2/fifo", (to,), body),
        Spread("n2/fifo", rng.choice(["fifo:A", "sequencer:broadcast"]), body),
        Listens(rng.randint(0, 9), ["A", "sequencer:broadcast"]),
        Heard(rng.randint(0, 9)),
    ]
    parcel = _encode(rng.choice(kinds))
    return mutated(rng, parcel) if rng.random() < 0.5 else parcel


def of_a_member(rng: Random) -> bytes:
    """What a broken member sends after its greeting."""
    hello = link.Hello(link.VERSION, "fuzzed", MEMBER, str(rng.random()), token=TOKEN)
    out = link.encode_frame(hello)
    first = 1
    for _ in range(rng.randint(1, 5)):
        payloads = [_parcel(rng) for _ in range(rng.randint(1, 4))]
        kinds = [link.Items(first, payloads)] * 5 + [
            link.Taken(rng.choice([0, 1, 2**62])),
            link.Alive(),
            hello,
        ]
        frame = rng.choice(kinds)
        first += len(payloads) if isinstance(frame, link.Items) else 0
        body = _encode(frame)
        if rng.random() < 0.2:
            body = mutated(rng, body)
        length = len(body) if rng.random() < 0.9 else rng.choice([0, 1, len(body) + 9, 2**32 - 1])
        out += length.to_bytes(4, "big") + body
    return out


def of_an_application(rng: Random) -> bytes:
    """What a broken application sends after its greeting."""
    frames: list[object] = [session.Knock(session.VERSION, APPLICATIONS)]
    names = ["a", "", "x" * 300, "\u0000", "n1"]
    text = rng.choice(["A", "A, B", "A then B", "A then", "", "(" * 2_000, "A" * 70_000])
    order = rng.choice(["none", "total strict", "fifo", "best"])
    for _ in range(rng.randint(1, 5)):
        source = rng.choice(names)
        given = [session.Given("A", {"x": 1}, rng.choice([None, 0, 2**63 - 1]), "")]
        frames.append(
            rng.choice(
                [
                    session.Announce(1, source, "w"),
                    session.Publishes(2, source, rng.choice([-1, 0, 1, 2**62]), given),
                    session.Subscribes(3, text, order, "", rng.choice(names)),
                    session.Took(rng.choice(names), rng.choice([-1, 0, 2**62])),
                    session.Ends(4, rng.choice(names)),
                    session.Alive(),
                ]
            )
        )
    out = b""
    for frame in frames:
        body = _encode(frame)
        if frame is not frames[0] and rng.random() < 0.3:
            body = mutated(rng, body)
        out += len(body).to_bytes(4, "big") + body
    return out


def of_a_stranger(rng: Random) -> bytes:
    """What nobody's program sends."""
    make = rng.choice([of_a_member, of_an_application])
    return rng.choice([rng.randbytes(rng.randint(0, 200)), mutated(rng, make(rng))])


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


async def attack(port: int, data: bytes) -> bytes:
    """One connection; what was answered before it was closed."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(_CLOSED_S):
            return await reader.read()
    except OSError:
        return b""  # it was closed while we were still writing
    finally:
        writer.close()


async def attacks(rng: Random, count: int, *, address: int, door: int) -> Counter[str]:
    """Many, a few at a time; how many of each kind."""
    kinds: list[tuple[str, int, Callable[[Random], bytes]]] = [
        ("member", address, of_a_member),
        ("application", door, of_an_application),
        ("stranger at the address", address, of_a_stranger),
        ("stranger at the door", door, of_a_stranger),
    ]
    done: Counter[str] = Counter()
    for start in range(0, count, 8):
        chosen = [rng.choice(kinds) for _ in range(min(8, count - start))]
        await asyncio.gather(*(attack(port, make(rng)) for _, port, make in chosen))
        done.update(name for name, _, _ in chosen)
    return done
