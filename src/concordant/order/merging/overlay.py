"""The overlay of mergers as a pure function: signatures to mergers, parents and hosts.

A signature is a conjunction's topics in topic order, without repeats. Each prefix of a signature,
and each of its topics, has a merger; a merger's parents are its prefix and its last topic. Parents
depend on the signature alone, so a new subscription adds mergers below and never between. Hosts are
chosen by rendezvous hashing: everybody computes the same ones and nobody has to be asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from concordant.model.subscription import Conjunction

Signature = tuple[str, ...]

LEFT, RIGHT = "left", "right"
SIDES = (LEFT, RIGHT)

_CACHED_MAX = 10_000
"""Mergers whose hosts are remembered; of the others they are computed again."""


def signature_of(conjunction: Conjunction) -> Signature:
    """The topics of a conjunction, sorted, each once."""
    return tuple(conjunction.instances)


def nodes(signatures: Iterable[Signature]) -> tuple[Signature, ...]:
    """Every merger that the signatures need, parents before children (Wilkin 2015, fig. 3.2).

    >>> nodes([("A", "B", "C")])
    (('A',), ('B',), ('C',), ('A', 'B'), ('A', 'B', 'C'))
    """
    found: set[Signature] = set()
    for signature in signatures:
        found.update(signature[:length] for length in range(1, len(signature) + 1))
        found.update((topic,) for topic in signature)
    return tuple(sorted(found, key=lambda one: (len(one), one)))


def parents(signature: Signature) -> tuple[Signature, ...]:
    """The prefix and the last topic; a root has none.

    >>> parents(("A", "B", "C")), parents(("A",))
    ((('A', 'B'), ('C',)), ())
    """
    return (signature[:-1], signature[-1:]) if len(signature) > 1 else ()


def name_of(signature: Signature) -> str:
    """One name per signature, whatever characters its topics have.

    >>> name_of(("A", "B+C"))
    'A+B\\\\+C'
    """
    return "+".join(topic.replace("\\", "\\\\").replace("+", "\\+") for topic in signature)


@lru_cache(maxsize=_CACHED_MAX)
def signature_named(name: str) -> Signature:
    """The signature of a name.

    >>> signature_named(name_of(("A", "B+C")))
    ('A', 'B+C')
    """
    topics, current, escaped = [], "", False
    for character in name:
        if escaped or character not in "\\+":
            current += character
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            topics.append(current)
            current = ""
    return (*topics, current)


@lru_cache(maxsize=_CACHED_MAX)
def hosts_of(signature: Signature, hosts: tuple[str, ...], count: int) -> tuple[str, ...]:
    """The hosts of a merger's replicas: those with the greatest hashes, so that a host that comes
    or goes moves only its own mergers."""
    name = name_of(signature)

    def weight(host: str) -> bytes:
        return hashlib.blake2b(f"{len(host)}:{host}{name}".encode(), digest_size=8).digest()

    return tuple(sorted(hosts, key=lambda host: (weight(host), host), reverse=True)[:count])


def first_replica(consumer: str, count: int) -> int:
    """The replica that a consumer asks first: consumers are spread over all of them."""
    return hashlib.blake2b(consumer.encode(), digest_size=2).digest()[0] % count
