"""What a running question leaves on disk: what it asks, what each micro-batch did, state by bucket.

    job.json                    the subscriptions with their generations, release, buckets
    commits/N.json              what micro-batch N did; there only when its results are written
    state/BUCKET/N.state        what a bucket tells of micro-batch N, a line; then its state

Everything is written beside its name and renamed, so a reader sees it whole or not at all. State N
is made from state N-1 and the rows of N alone, so a micro-batch that is run again writes the same
state again. It must be on storage that every worker sees. Knows files, no Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from concordant.errors import UsageError
from concordant.files.atomic import atomic_output
from concordant.language import parse
from concordant.model.emission import emitters
from concordant.model.subscription import Subscription

VERSION = 3
FINAL = 2**62
"""The number of the micro-batch that releases what is left when the input is complete."""


class SavedJob(msgspec.Struct):
    """What a checkpoint belongs to."""

    version: int
    release: str
    bucket_count: int
    adapter: str
    generations: list[list[str]]
    """Names of the subscriptions that came together."""
    texts: dict[str, str]
    """Every subscription that ever ran, by name."""
    muted: list[str] = []


class Commit(msgspec.Struct):
    """What one micro-batch did."""

    batch: int
    marks: dict[str, int] = {}
    """How far each source is known to have come."""
    until_us: int | None = None
    """What was released: events before this time."""
    counts: dict[str, int] = {}
    """What was done since the checkpoint began, this micro-batch included."""
    seconds: float = 0.0


class Told(msgspec.Struct):
    """What a bucket tells of a micro-batch, or all of them together."""

    counts: dict[str, int] = {}
    marks: dict[str, int] = {}
    """How far each source has come: the same in all buckets."""


class Checkpoint:
    """A folder of our own, beside Spark's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # --- what is asked ------------------------------------------------------------------------

    def open(
        self,
        subscriptions: Sequence[Subscription],
        *,
        release: str,
        bucket_count: int,
        adapter: str,
    ) -> SavedJob:
        """Begin, or go on with what was begun here; anything else is refused."""
        self._refuse_parted()
        texts = {one.name: str(one) for one in subscriptions}
        path = self.folder / "job.json"
        if not path.exists():
            if (self.folder / "commits").exists():
                raise self._damaged("job.json is missing")
            job = SavedJob(VERSION, release, bucket_count, adapter, [list(texts)], texts)
        else:
            try:
                saved = msgspec.json.decode(path.read_bytes(), type=SavedJob)
            except (msgspec.DecodeError, OSError) as error:
                raise self._damaged(f"job.json: {error}") from None
            for name, mine, theirs in (
                ("version", VERSION, saved.version),
                ("release", release, saved.release),
                ("adapter", adapter, saved.adapter),
            ):
                if mine != theirs:
                    raise UsageError(
                        f"the checkpoint was begun with {name} {theirs!r}, and this is {mine!r}",
                        hint="go on as it was begun, or give another checkpoint folder",
                        place=str(self.folder),
                    )
            job = reconciled(saved, subscriptions)
        _write(path, msgspec.json.format(msgspec.json.encode(job)))
        return job

    def _refuse_parted(self) -> None:
        """Spark's half and ours belong together: with another, events would be skipped unseen."""
        ours = [number for number in self._commits() if number != FINAL]
        begun, done = (self._of_spark(name) for name in ("offsets", "commits"))
        if max(ours, default=-1) > max(begun, default=-1):
            raise self._damaged("Spark's part of it is missing or older")
        if max(done, default=-1) > max(ours, default=-1):
            raise self._damaged("our part of it is missing or older than Spark's")

    def _of_spark(self, name: str) -> list[int]:
        """Micro-batches in a log of Spark's."""
        folder = self.spark_folder / name
        return [int(one.name) for one in folder.glob("[0-9]*") if one.name.isdigit()]

    @property
    def spark_folder(self) -> Path:
        """Where Spark keeps its own half."""
        return self.folder.parent / "spark"

    def _damaged(self, what: str) -> UsageError:
        return UsageError(
            f"this is no checkpoint of ours, or a damaged one ({what})",
            hint="give another checkpoint folder, or remove this one to start anew",
            place=str(self.folder),
        )

    # --- micro-batches ------------------------------------------------------------------------

    def commit(self, commit: Commit) -> None:
        """From here on the micro-batch has happened."""
        _write(self._commit_path(commit.batch), msgspec.json.encode(commit))

    def committed(self, batch: int) -> Commit | None:
        """What a micro-batch did, if it has happened."""
        try:
            return msgspec.json.decode(self._commit_path(batch).read_bytes(), type=Commit)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise self._damaged(f"commit {batch}: {error}") from None

    def last(self, before: int | None = None) -> Commit | None:
        """The newest micro-batch that has happened (before a given one)."""
        earlier = [number for number in self._commits() if before is None or number < before]
        return self.committed(max(earlier)) if earlier else None

    def count(self) -> int:
        """How many micro-batches have happened."""
        return len(self._commits())

    def _commits(self) -> list[int]:
        return [int(one.stem) for one in (self.folder / "commits").glob("[0-9]*.json")]

    def _commit_path(self, batch: int) -> Path:
        return self.folder / "commits" / f"{batch}.json"

    # --- state --------------------------------------------------------------------------------

    def read_state(self, bucket: int, before: int) -> bytes | None:
        """The newest state of a bucket that is older than a micro-batch."""
        versions = [number for number in self._versions(bucket) if number < before]
        if not versions:
            return None
        whole = self._state_path(bucket, max(versions)).read_bytes()
        return whole[whole.find(b"\n") + 1 :]

    def write_state(self, bucket: int, batch: int, state: bytes, told: Told | None = None) -> None:
        """The state of a bucket after a micro-batch, and what it tells of that.

        States that nobody can need any more go.
        """
        line = msgspec.json.encode(told or Told()) + b"\n"
        _write(self._state_path(bucket, batch), line + state)
        older = sorted(number for number in self._versions(bucket) if number < batch)
        for number in older[:-1]:
            self._state_path(bucket, number).unlink(missing_ok=True)

    def told(self, batch: int, bucket_count: int) -> Told | None:
        """What all buckets tell of a micro-batch; None if one has not been there."""
        total: Counter[str] = Counter()
        one = Told()
        for bucket in range(bucket_count):
            try:
                with self._state_path(bucket, batch).open("rb") as stream:
                    one = msgspec.json.decode(stream.readline(), type=Told)
            except FileNotFoundError:
                return None
            total.update(one.counts)
        return Told(dict(total), one.marks)

    def _versions(self, bucket: int) -> list[int]:
        folder = self.folder / "state" / str(bucket)
        return [int(one.stem) for one in folder.glob("[0-9]*.state")]

    def _state_path(self, bucket: int, batch: int) -> Path:
        return self.folder / "state" / str(bucket) / f"{batch}.state"


def reconciled(saved: SavedJob, wanted: Sequence[Subscription]) -> SavedJob:
    """A running question with subscriptions added or removed; a changed one is refused.

    Added ones are a generation of their own and start empty. Removed ones are muted; their state
    goes when their whole generation is.
    """
    texts = {one.name: str(one) for one in wanted}
    known = {name: text for name, text in saved.texts.items() if name not in saved.muted}
    for name, text in texts.items():
        if name in saved.texts and saved.texts[name] != text:
            raise UsageError(
                f"subscription '{name}' is not what it was when the checkpoint was begun, and its "
                "state would be wrong",
                hint="give the changed one another name, and it starts empty",
            )
        if name in saved.muted:
            raise UsageError(
                f"subscription '{name}' was removed from this checkpoint before",
                hint="give it another name, and it starts empty",
            )
    added = [name for name in texts if name not in known]
    _refuse_feeding(saved, texts, added)
    return msgspec.structs.replace(
        saved,
        generations=[*saved.generations, *([added] if added else [])],
        texts={**saved.texts, **texts},
        muted=sorted({*saved.muted, *(known.keys() - texts.keys())}),
    )


def _refuse_feeding(saved: SavedJob, texts: Mapping[str, str], added: Sequence[str]) -> None:
    """A derived topic may not lead from one generation to another: they have kernels apart."""
    before = subscriptions_of({**saved.texts})
    after = subscriptions_of({name: texts[name] for name in added})
    for emitting, reading in ((before, after), (after, before)):
        topics = emitters(emitting)
        for one in reading:
            for topic in one.topics:
                if topic in topics:
                    raise UsageError(
                        f"subscription '{one.name}' reads the derived topic '{topic}', and what "
                        "emits it did not come with it",
                        hint="start from an empty checkpoint, or emit the topic under another name",
                    )


def subscriptions_of(texts: Mapping[str, str]) -> tuple[Subscription, ...]:
    """Subscriptions of saved texts."""
    return tuple(one for text in texts.values() for one in parse(text))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_output(path, overwrite=True) as temporary:
        temporary.write_bytes(data)
