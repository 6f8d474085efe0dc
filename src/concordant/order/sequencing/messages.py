"""What sequencers and clients tell each other, what they make durable, and their limits.

Contents travel in parcels over links that number, acknowledge and repeat (`channel`). Events travel
by the dissemination as `Signed`, with their timestamps. In brackets: what the papers call it.
"""

from __future__ import annotations

import msgspec

from concordant.machine.instant import SECOND, Duration, Instant
from concordant.model.event import Event
from concordant.order.client import ClientOptions, Delivered
from concordant.order.sequencing.overlap import Version

Timestamp = dict[str, int]
"""How many events of each topic come before: the event's own number for its own topic, and an entry
for every other topic of its sequencing group that has any events yet."""


class SequencingOptions(ClientOptions, frozen=True):
    """Waiting times and bounds of sequencers and their clients."""

    edge_on: int = 2
    """So many subscribers must hold two topics together before they are ordered together. 2: one
    order for topics that are held together. 1: one order over whole histories, and causal."""
    repeat_us_max: Duration = 5 * SECOND
    """Repeats wait twice as long each time, up to this."""
    tag: bool = False
    """Do not wait for ever: deliver what is out of order, and say so."""
    time_to_live_us: Duration = 5 * SECOND
    """With `tag`: so long an event may wait for what belongs before it."""
    buffer_count_max: int = 1_000
    """With `tag`: so many events may wait; 0 is to wait for nothing."""
    gap_count_max: int = 10_000
    """With `tag`: numbers passed over that are remembered per topic; older ones that come after
    all are taken for doubles."""
    queue_count_max: int = 10_000
    """Requests that a sequencer has under way, or keeps while the ranking changes; its client
    repeats what is not taken. At replicas also: inputs that no majority has yet."""
    client_count_max: int = 100_000
    """Clients that a sequencer knows. Of those that hold nothing any more, the one that left first
    is forgotten; if nobody has left, who is new is not heard."""
    log_count_max: int = 50_000
    """Records after which a sequencer writes its state instead."""
    lease_us: Duration = 0
    """A subscriber that is not heard of for so long is forgotten by sequencers; 0: never."""
    prepare_us_max: Duration = 5 * SECOND
    """So long a change of the ranking may wait for the slowest sequencer; then it is given up."""
    survey_us: Duration = 0
    """How often the coordinator looks for a better ranking; 0: only when it is asked."""
    gain_percent_min: int = 20
    """So many of the hops a new ranking must save: events wait while it is installed."""
    sample_count: int = 1_000
    """About so many of the last events say what is popular. A ranking that is made from few of them
    follows chance, and pays for a pause with nothing."""
    trial_count_max: int = 200
    """Moves that are tried to improve a ranking."""


# --- clients and sequencers -----------------------------------------------------------------------


RUN_COUNT_MAX = 100
"""Events that are given their places at once, at most: a sequencer's bounds count events, and it
takes or leaves a run as a whole."""


class Create(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Give these events their places, one after the other (CREATE, which carries the events)."""

    n: int
    """The number of the first at the client, over all topics and lives; the others follow."""
    events: tuple[Event, ...]

    @property
    def last(self) -> int:
        return self.n + len(self.events) - 1

    def after(self, n: int) -> tuple[Event, ...]:
        """Those with greater numbers."""
        return self.events[max(0, n - self.n + 1) :]


class Created(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Your events of this topic are signed and disseminated up to this number (EVENT_TS)."""

    topic: str
    n: int


class Enter(msgspec.Struct, frozen=True, tag=True, gc=False):
    """I am about to hold these topics, of which one is new (SUB_REQ)."""

    version: Version
    topics: tuple[str, ...]
    new: str


class Entered(msgspec.Struct, frozen=True, tag=True, gc=False):
    """All that must know about the new topic know (MARK_DONE)."""

    version: Version
    topic: str


class Begin(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Where do I begin? (START)"""

    version: Version


class Begun(msgspec.Struct, frozen=True, tag=True, gc=False):
    """After this number (START_TS)."""

    version: Version
    topic: str
    n: int


class Leave(msgspec.Struct, frozen=True, tag=True, gc=False):
    """These are all the topics that I hold (UNSUB)."""

    version: Version
    topics: tuple[str, ...]


class Renew(msgspec.Struct, frozen=True, tag=True, gc=False):
    """I still hold your topic; `sent_at` is by my clock."""

    sent_at: Instant


class Renewed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to `Renew`; not known: you were forgotten."""

    topic: str
    sent_at: Instant
    known: bool


class Forget(msgspec.Struct, frozen=True, tag=True, gc=False):
    """By a sequencer to itself: this subscriber's lease has ended."""

    client: str
    version: Version


# --- among sequencers -----------------------------------------------------------------------------


class Fill(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A run of events on its way to the sequencers that still have to sign it (FILL_IN)."""

    epoch: int
    topic: str
    n: int
    """The last of them. Nothing comes between them, so those who sign need not know the first."""
    timestamp: Timestamp
    """The entries of those that have signed; the events' own sequencer keeps the others."""
    todo: tuple[str, ...]
    """Who has to sign, the nearest first."""


class Introduce(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A topic is at this number, for those that will be ordered with it from now on (MARK)."""

    epoch: int
    topic: str
    n: int
    client: str
    version: Version
    todo: tuple[str, ...]


class Done(msgspec.Struct, frozen=True, tag=True, gc=False):
    """All have signed your events up to this one, and these are their entries."""

    n: int
    timestamp: Timestamp


class Introduced(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Your introduction has been everywhere."""

    client: str
    version: Version


class Link(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Messages from me may need these topics, too."""

    epoch: int
    topics: tuple[str, ...]


class Flush(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Answer when you have handled everything that I sent before."""

    epoch: int


class Flushed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to `Flush`."""

    epoch: int


# --- stamping in parallel -------------------------------------------------------------------------


class Propose(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Which stamp do you propose for this request of my topic?"""

    topic: str
    request: int


class Proposal(msgspec.Struct, frozen=True, tag=True, gc=False):
    """This one; `topic` is whose sequencer proposes it."""

    topic: str
    request: int
    stamp: int


class Final(msgspec.Struct, frozen=True, tag=True, gc=False):
    """This is the greatest, and holds."""

    topic: str
    request: int
    stamp: int


class Counted(msgspec.Struct, frozen=True, tag=True, gc=False):
    """So many events of my topic are before it."""

    topic: str
    request: int
    n: int


# --- changes of the ranking -----------------------------------------------------------------------


class Prepare(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Begin nothing new, and tell me when what you began is finished."""

    epoch: int


class Prepared(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What I began is finished; I have given so many numbers."""

    epoch: int
    topic: str
    n: int


class Commit(msgspec.Struct, frozen=True, tag=True, gc=False):
    """This is the order of the sequencers now, the lowest first, and how far each topic is."""

    epoch: int
    order: tuple[str, ...]
    counts: dict[str, int]


class Abort(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Nothing comes of it: go on as before."""

    epoch: int


class Survey(msgspec.Struct, frozen=True, tag=True, gc=False):
    """With whom are you ordered, and how far are you?"""


class Report(msgspec.Struct, frozen=True, tag=True, gc=False):
    """With whom I am ordered, and how many events I have signed: what a ranking is made from."""

    topic: str
    edges: tuple[str, ...]
    n: int


Content = (
    Create
    | Created
    | Enter
    | Entered
    | Begin
    | Begun
    | Leave
    | Forget
    | Fill
    | Introduce
    | Done
    | Introduced
    | Link
    | Flush
    | Flushed
    | Propose
    | Proposal
    | Final
    | Counted
    | Prepare
    | Prepared
    | Commit
    | Abort
)


# --- links and dissemination ----------------------------------------------------------------------


class Parcel(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A content with its number on its link, in a life of the client at one end of it."""

    life: int
    n: int
    content: Content


class Receipt(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Parcels up to this number have been taken."""

    life: int
    n: int


class Signed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An event with its number in its topic and its timestamp."""

    n: int
    event: Event
    timestamp: Timestamp


# --- durable --------------------------------------------------------------------------------------


class Handled(msgspec.Struct, frozen=True, tag=True, gc=False):
    """At a sequencer: the next input. Its state is what all of them make of it, in their order."""

    source: str
    life: int
    n: int
    content: Content


class Proposed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """At the coordinator: a new order is being prepared."""

    epoch: int
    order: tuple[str, ...]


class GivenUp(msgspec.Struct, frozen=True, tag=True, gc=False):
    """At the coordinator: nothing came of it."""

    epoch: int


class Condensed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """At a sequencer: its whole state, in place of the inputs before."""

    state: bytes


class Born(msgspec.Struct, frozen=True, tag=True, gc=False):
    """At a client: another life began."""

    life: int


class Asked(msgspec.Struct, frozen=True, tag=True, gc=False):
    """At a client: sequencers of these topics may think that it holds them."""

    topics: tuple[str, ...]


class Confirmed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """At a client: its events of a topic are on their way up to this number."""

    topic: str
    n: int


class Passed(Delivered, frozen=True, tag=True, gc=False):
    """At a client: an event is, or is about to be, delivered; with its timestamp."""

    timestamp: Timestamp = msgspec.field(default_factory=dict)


# --- requests -------------------------------------------------------------------------------------


class Rerank(msgspec.Struct, frozen=True, gc=False):
    """To the coordinator: this is to be the order of the topics, the lowest first."""

    order: tuple[str, ...]


def sequencer_of(topic: str) -> str:
    """The address of a topic's sequencer."""
    return f"sequencer-{topic}"


COORDINATOR = "coordinator"
"""The address of the machine that changes the ranking."""
