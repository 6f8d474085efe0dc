"""The cluster file: what it means, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from concordant.errors import UsageError
from concordant.machine.inputs import Received, Started
from concordant.net.cluster import cluster_from, read_cluster, secret, tls_contexts
from concordant.net.node import Node
from concordant.net.roles import STRATEGIES
from concordant.order.merging.messages import Pull

GOOD = """
[cluster]
name = "shop"
strategies = ["fifo", "sequencer", "clock"]

[nodes.n1]
door = "127.0.0.1:7400"
address = "127.0.0.1:7401"

[nodes.n2]
door = "127.0.0.1:7410"
address = "127.0.0.1:7411"
http = "127.0.0.1:7412"

[placed]
"sequencer/sequencer" = "n2"

[topics.Order]
n = "int"
"""


def test_a_good_file_says_who_hosts_what() -> None:
    found = cluster_from(GOOD)
    assert found.names == ("n1", "n2")
    assert found.setting("n1").placed == {"sequencer/sequencer": "n2/sequencer/sequencer"}
    assert found.schemas["Order"].attributes == {"n": "int"}
    assert {found.home(f"name {n}") for n in range(20)} == {"n1", "n2"}
    text = GOOD.replace('"shop"', '"shop"\nplacement = "first"')
    placed = '[placed]\n"sequencer/sequencer" = "n2"\n'
    by_first = cluster_from(text.replace(placed, ""))
    assert by_first.setting("n2").placed["sequencer/sequencer"].startswith("n1/")


MANY = (
    '[cluster]\nname = "shop"\nstrategies = ["sequencing", "sequencing-replicated"]\n'
    + "".join(
        f'[nodes.n{n}]\ndoor = "127.0.0.1:{7400 + n}"\naddress = "127.0.0.1:{7500 + n}"\n'
        for n in range(1, 4)
    )
    + "".join(f"[topics.T{n}]\n" for n in range(1, 13))
)


def homes_in(text: str, strategy: str) -> dict[str, str]:
    """The node of every part of a strategy."""
    placed = cluster_from(text).setting("n1").placed
    mine = [address.split("/") for key, address in placed.items() if key.startswith(f"{strategy}/")]
    return {part: node for node, _, part in mine}


def test_topics_that_are_subscribed_together_are_sequenced_on_one_node() -> None:
    groups = [[f"T{n}" for n in range(first, 13, 3)] for first in (1, 2, 3)]
    told = "[together]\n" + "".join(f"g{n} = {group}\n" for n, group in enumerate(groups))
    for strategy, first in (("sequencing", ""), ("sequencing-replicated", "*1")):
        untold, known = homes_in(MANY, strategy), homes_in(MANY + told, strategy)
        assert [{known[f"{topic}{first}"] for topic in group} for group in groups] == [
            {"n1"},
            {"n2"},
            {"n3"},
        ]
        assert any(len({untold[f"{topic}{first}"] for topic in group}) > 1 for group in groups)
    pinned = MANY + told + '[placed]\n"sequencing/T1" = "n3"\n'
    assert homes_in(pinned, "sequencing")["T1"] == "n3"


def test_replicas_of_a_sequencer_have_nodes_of_their_own() -> None:
    found = homes_in(MANY, "sequencing-replicated")
    for which in (*(f"T{n}" for n in range(1, 13)), "ranking*"):
        assert {found[f"{which}*{n}"] for n in (1, 2, 3)} == {"n1", "n2", "n3"}
    assert {found[f"T{n}*1"] for n in range(1, 13)} == {"n1", "n2", "n3"}  # all nodes lead some
    alone = MANY.replace(MANY[MANY.index("[nodes.n3]") : MANY.index("[topics.T1]")], "")
    assert "T1*2" not in homes_in(alone, "sequencing-replicated")  # two nodes: no majority to gain


BASELINES = MANY.replace('"sequencing", "sequencing-replicated"', '"replicated", "paxos", "token"')


@pytest.mark.parametrize("strategy", ["replicated", "paxos", "token"])
def test_servers_of_a_baseline_have_nodes_of_their_own(strategy: str) -> None:
    found = homes_in(BASELINES, strategy)
    assert sorted(found) == ["q1", "q2", "q3"]
    assert set(found.values()) == {"n1", "n2", "n3"}
    by_first = BASELINES.replace('"shop"', '"shop"\nplacement = "first"')
    assert set(homes_in(by_first, strategy).values()) == {"n1", "n2", "n3"}
    pinned = BASELINES + f'[placed]\n"{strategy}/q2" = "{found["q1"]}"\n'
    assert homes_in(pinned, strategy) == found | {"q2": found["q1"]}
    two = BASELINES.replace(BASELINES[BASELINES.index("[nodes.n3]") :], "")
    assert set(homes_in(two, strategy).values()) == {"n1", "n2"}  # as far as there are nodes


def test_parameters_of_causal_delivery_reach_brokers_and_clients() -> None:
    text = GOOD.replace('"clock"]', '"clock", "causal"]')
    told = cluster_from(text + "[parameters]\ntick_us = 7\nsilence_us = 8\n").setting("n1")
    causal = STRATEGIES["causal"]
    broker = causal.parts(told)[0].make(told, "n1/causal/broker")
    assert broker.options.tick_us == 7  # type: ignore[attr-defined]
    client = causal.subscriber(told, "n1/reader")
    assert client._options.silence_us == 8  # type: ignore[attr-defined]


def test_a_node_that_lost_its_disk_is_known_to_its_mergers_only() -> None:
    text = MANY.replace('"sequencing", "sequencing-replicated"', '"merging", "sequencer"')
    text = text.replace('"shop"', '"shop"\nreplaced = "n2"')
    for node, arrives in (("n1", False), ("n2", True), ("n3", False)):
        told = cluster_from(text).setting(node)
        host = STRATEGIES["merging"].parts(told)[0].make(told, f"{node}/merging/host")
        host.handle(0, Started())
        host.handle(1, Received("n1/merging/x", (Pull("T1", "x", 1, 0, 0, 10),)))
        (part,) = host._state.parts.values()  # type: ignore[attr-defined]
        assert part.replica.arriving == arrives
    for old, new, said in (
        ('"n2"', '"n9"', "[cluster] replaced: no node is called 'n9'"),
        ('"merging", ', "", "[cluster] replaced: no order here can give a node what it lost"),
        (text[text.index("[nodes.n3]") :], "", "[cluster] replaced: nobody else has what"),
    ):
        with pytest.raises(UsageError) as caught:
            cluster_from(text.replace(old, new, 1), place="x.toml")
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "shop"', "", "x.toml: [cluster]: the table missing required field `name`"),
        ('"shop"', '""', "x.toml: [cluster] name: a cluster needs a name"),
        ('"fifo", ', '"fifo", "magic", ', "x.toml: [cluster] strategies: there is no strategy"),
        ('["fifo", "sequencer", "clock"]', "[]", "[cluster] strategies: there is no order"),
        ("7400", "port", "x.toml: [nodes.n1] door: '127.0.0.1:port' is no address"),
        ("7401", "7400", "x.toml: [nodes.n1] address: 127.0.0.1:7400 is used by [nodes.n1] door"),
        ('address = "127.0.0.1:7401"', "", "x.toml: [nodes.n1]: other nodes must reach it"),
        ('address = "127.0.0.1:7401"', "port = 1", "[nodes] n1: the table contains unknown field"),
        ('address = "127.0.0.1:7401"', "address = 7401", "[nodes.n1] address: expected a string"),
        ("[nodes.n1]", '[nodes."a b"]', "x.toml: [nodes]: 'a b' is no name for a node"),
        ('= "n2"', '= "n3"', "x.toml: [placed] sequencer/sequencer: no node is called 'n3'"),
        ('"sequencer/sequencer"', '"oven"', "x.toml: [placed]: no part is called 'oven'"),
        ('n = "int"', 'n = "number"', "x.toml: [topics.Order] n: there is no kind 'number'"),
        ('n = "int"', 'time = "int"', "x.toml: [topics.Order] time: every event has that"),
        ("[topics", "[parameters]\nask_us = 0\n[topics", "[parameters] ask_us: a parameter is"),
        ("[topics", "[parameters]\nx = 1\n[topics", "[parameters]: there is no parameter 'x'"),
        ("[topics", "[parameters]\nseed = 1\n[topics", "there is no parameter 'seed'"),
        ("[topics", "[parameters]\nfanout = 0\n[topics", "[parameters] fanout: a parameter is"),
        ("[topics", "[together]\na = ['Gone']\n[topics", "[together] a: the topic 'Gone' is not"),
        ("[topics", "[limits]\nsessions_max = 0\n[topics", "[limits] sessions_max: a limit is"),
        (
            "[topics",
            "[parameters]\noutbox_count_max = 5\n[topics",
            "[limits] batch_count_max: a batch has to fit",
        ),
        ("[cluster]", "[cluster", "x.toml: it is not TOML"),
    ],
)
def test_what_is_wrong_is_said_with_file_table_and_key(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError) as caught:
        cluster_from(GOOD.replace(old, new, 1), place="x.toml")
    assert said in str(caught.value)


def test_a_missing_file_and_a_missing_node_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such cluster file"):
        read_cluster(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="the nodes are n1, n2"):
        Node(cluster_from(GOOD), "n9", place="x.toml")


def test_secrets_may_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("hush\n")
    monkeypatch.setenv("SHOP_TOKEN", "quiet")
    texts = ("x", "file:token", "env:SHOP_TOKEN")
    read = [secret(text, folder=tmp_path, place="") for text in texts]
    assert read == ["x", "hush", "quiet"]
    for text in ("file:none", "env:NONE_SUCH"):
        with pytest.raises(UsageError):
            secret(text, folder=tmp_path, place="")


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    tls = '[tls]\nauthority = "ca.pem"\ncertificate = "{node}.pem"\nkey = "{node}.key"\n'
    found = cluster_from(GOOD + tls)
    assert found.tls is not None
    with pytest.raises(UsageError, match=r"\[tls\] .*ca\.pem"):
        tls_contexts(found.tls, "n1", folder=tmp_path, place="x.toml")
