"""A replicated log, one message at a time: what is committed stays, whoever leads."""

from __future__ import annotations

from collections import deque

import pytest

from concordant.errors import InvariantViolation
from concordant.machine.inputs import Message, Record
from concordant.order.broadcast.paxos import NOTHING, PaxosLog
from concordant.order.replication import Lead, Outbox, Replica, ReplicationOptions

OPTIONS = ReplicationOptions(beat_us=10, elect_us=100)


class Group:
    """Three replicas, their disks, and messages that are carried when it is said."""

    def __init__(self, kind: type = Replica) -> None:
        self.kind = kind
        self.replicas = [kind("log", place, OPTIONS) for place in range(3)]
        self.disks: list[list[Record]] = [[], [], []]
        self.posted: deque[tuple[int, int, Message]] = deque()
        self.now = 0
        for replica in self.replicas:
            replica.begin(0)

    def out(self, place: int) -> Outbox:
        def send(to: int, message: Message) -> None:
            self.posted.append((place, to, message))

        return Outbox(self.disks[place].append, send)

    def append(self, place: int, *entries: bytes) -> None:
        self.replicas[place].append(entries, self.out(place))
        self.replicas[place].flush(self.out(place))

    def tick(self, place: int, now: int) -> None:
        self.now = now
        self.replicas[place].tick(now, self.out(place))

    def carry(self, *alive: int) -> None:
        """Deliver everything between these; what others are sent is lost."""
        while self.posted:
            source, to, message = self.posted.popleft()
            if source in alive and to in alive:
                self.replicas[to].receive(self.now, source, message, self.out(to))

    def crash(self, place: int) -> None:
        self.replicas[place] = self.kind("log", place, OPTIONS)
        for record in self.disks[place]:
            self.replicas[place].recall(record)
        self.replicas[place].seen_at = self.now

    def committed(self, place: int) -> list[bytes]:
        return self.replicas[place].committed(0)


@pytest.fixture(params=[Replica, PaxosLog])
def group(request: pytest.FixtureRequest) -> Group:
    return Group(request.param)


def test_an_entry_is_committed_when_a_majority_keeps_it(group: Group) -> None:
    group.append(0, b"a")
    assert group.committed(0) == []
    group.carry(0, 1)
    assert group.committed(0) == [b"a"]


def test_a_new_leader_has_what_was_committed(group: Group) -> None:
    group.append(0, b"a", b"b")
    group.carry(0, 1)
    group.tick(2, 500)
    group.carry(1, 2)
    group.tick(2, 520)
    group.carry(1, 2)
    assert group.replicas[2].leading
    assert group.committed(2) == [b"a", b"b"]


def test_the_log_of_the_greatest_epoch_wins_and_not_the_longest(group: Group) -> None:
    # The old leader has five entries alone; its successor commits one; the old one comes back.
    group.append(0, b"1", b"2", b"3", b"4", b"5")
    group.posted.clear()
    group.tick(1, 500)
    group.carry(1, 2)
    group.append(1, b"seen")
    group.carry(1, 2)
    assert group.committed(1) == [b"seen"]
    group.crash(0)
    group.tick(0, 2_000)
    group.carry(0, 2)
    group.tick(0, 2_100)
    group.carry(0, 2)
    assert group.replicas[0].leading
    assert group.committed(0)[0] == b"seen"


def test_an_old_leader_commits_nothing_any_more(group: Group) -> None:
    group.tick(1, 500)
    group.carry(1, 2)
    assert group.replicas[1].leading and group.replicas[0].leading
    group.append(0, b"old")
    group.carry(0, 2)
    assert group.committed(0) == [] and group.committed(2) == []
    assert not group.replicas[0].leading  # it was told


def test_a_promise_is_kept_over_a_crash(group: Group) -> None:
    group.tick(1, 500)
    group.carry(1, 2)
    group.crash(2)
    group.append(0, b"old")
    group.carry(0, 2)
    assert group.committed(0) == []


def test_after_a_crash_nobody_leads_without_being_elected(group: Group) -> None:
    group.append(0, b"a")
    group.carry(0, 1, 2)
    group.crash(0)
    assert not group.replicas[0].leading
    group.tick(1, 1_000)
    group.carry(0, 1, 2)
    group.tick(1, 1_100)
    group.carry(0, 1, 2)
    assert [group.committed(place) for place in range(3)] == [[b"a"]] * 3


def test_who_was_away_gets_the_state_instead_of_old_entries(group: Group) -> None:
    group.append(0, *(b"%d" % n for n in range(10)))
    group.carry(0, 1)
    leader = group.replicas[0]
    leader.compact(leader.commit, b"ten")
    group.append(0, b"next")
    group.carry(0, 1)
    for now in (20, 200, 500):
        group.tick(0, now)
        group.carry(0, 1, 2)
    late = group.replicas[2]
    assert (late.base, late.state) == (10, b"ten")
    assert late.committed(10) == [b"next"]


def test_a_log_that_would_undo_what_is_committed_is_not_taken() -> None:
    group = Group()
    group.append(0, b"a")
    group.carry(0, 1, 2)
    group.tick(0, 50)
    group.carry(0, 1, 2)
    with pytest.raises(InvariantViolation, match="undo"):
        group.replicas[1].receive(60, 2, Lead("log", 2, 0, b"", (), 0), group.out(1))


def test_paxos_fills_a_hole_with_nothing() -> None:
    group = Group(PaxosLog)
    group.append(0, b"lost")
    group.posted.clear()
    group.append(0, b"kept")
    group.carry(0, 2)  # the second position is accepted elsewhere, the first nowhere
    group.tick(1, 500)
    group.carry(1, 2)
    group.tick(1, 520)
    group.carry(1, 2)
    assert group.committed(1) == [NOTHING, b"kept"]


def test_a_suspected_leader_is_not_waited_for_long() -> None:
    group = Group()
    group.tick(1, 50)
    assert not group.replicas[1].standing
    group.replicas[1].doubt(50)
    group.tick(1, 51)
    assert group.replicas[1].standing


# --- a replica whose disk is lost -----------------------------------------------------------------


def replaced(group: Group, place: int) -> Replica:
    """Another machine in the place of a replica, with an empty disk."""
    group.disks[place] = []
    group.replicas[place] = found = Replica("log", place, OPTIONS)
    found.arrive(group.now)
    return found


def test_who_takes_the_place_of_another_votes_for_nobody_before_it_has_the_log() -> None:
    group = Group()
    group.append(0, b"x")
    group.carry(0, 1)  # the third does not know of it
    assert group.committed(0) == [b"x"]
    replaced(group, 1)
    group.tick(2, 1_000)  # stands, and would win with an empty log
    group.carry(1, 2)
    assert not group.replicas[2].leading
    group.tick(2, 2_000)
    group.carry(0, 1, 2)
    assert group.replicas[2].leading and group.replicas[2].entries == [b"x"]


def test_who_takes_the_place_of_another_gets_the_whole_log_of_the_leader() -> None:
    group = Group()
    group.append(0, b"x", b"y")
    group.carry(0, 1, 2)
    found = replaced(group, 1)
    for now in (1_000, 1_010):
        group.tick(1, now)
        group.carry(0, 1, 2)
        group.tick(0, now)
        group.carry(0, 1, 2)
    assert not found.arriving and found.entries == [b"x", b"y"] and found.commit == 2
    group.append(0, b"z")
    group.carry(0, 1)
    assert group.committed(0) == [b"x", b"y", b"z"]


def test_who_takes_the_place_of_another_follows_nobody_whom_it_may_have_given_up() -> None:
    """It had promised a later epoch; the leader of the old one must not count on it again."""
    group = Group()
    group.tick(1, 1_000)  # the second stands; the third promises
    group.carry(1, 2)
    assert group.replicas[1].leading
    found = replaced(group, 2)
    group.tick(2, 1_010)
    group.carry(0, 2)  # only the old leader hears it
    group.tick(0, 1_020)
    group.carry(0, 2)
    assert found.arriving
    group.tick(2, 1_040)
    group.carry(1, 2)
    group.tick(1, 1_060)
    group.carry(1, 2)
    assert not found.arriving and found.promised == group.replicas[1].promised
