"""What a running question leaves on disk: what it asks, what each step did, state by bucket.

    job.json                    the subscriptions with their generations, and what state depends on
    commits/N.json              what step N did; there only when its results are written
    state/BUCKET/N-RUN.state    what a bucket tells of step N in a run, a line; then its state
    ending                      the newest step that was begun as an end of the input

A step is a micro-batch of Spark's, or an end: the input is complete, and what waits is released.
Everything is written beside its name and renamed, so a reader sees it whole or not at all. State N
is made from state N-1 and the rows of N alone, so a step that is run again makes the same state
again. A commit names the run whose states count: a task of an earlier run that is still at work
writes under another name, and does no harm. It must be on storage that every worker sees. Knows
files, no Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from concordant.errors import UsageError
from concordant.files.atomic import atomic_output
from concordant.language import parse
from concordant.model.emission import emitters
from concordant.model.kind import Kind
from concordant.model.subscription import Subscription, duration_text

VERSION = 4

COMMITS_KEPT = 256
"""Commits that are kept for people to look at; the last one is all that is needed."""

STATES_KEPT = 2
"""Steps whose states are kept: the last one's, and the one before, should it be run again."""


class Setting(msgspec.Struct, frozen=True):
    """What a checkpoint's state depends on beside its subscriptions."""

    release: str
    bucket_count: int
    adapter: str
    unique_us: int = 0
    """How long ids are remembered; 0: not at all."""


class SavedJob(msgspec.Struct):
    """What a checkpoint belongs to."""

    version: int
    setting: Setting
    kinds: dict[str, dict[str, Kind]]
    """Of every attribute that ever travelled, by topic."""
    generations: list[list[str]]
    """Names of the subscriptions that came together."""
    texts: dict[str, str]
    """Every subscription that ever ran, by name, in the order in which they came."""
    muted: list[str] = []
    query: str = ""
    """Spark's own name of this checkpoint."""


class Commit(msgspec.Struct):
    """What one step did."""

    step: int
    batch: int = -1
    """The newest micro-batch of Spark's that has happened: this one, unless it is an end."""
    is_end: bool = False
    query: str = ""
    """Spark's own name of this checkpoint."""
    run: str = ""
    """The run whose states are those of this step."""
    marks: dict[str, int] = {}
    """How far each source is known to have come: its latest time or, of a log, its last number."""
    until_us: int | None = None
    """What was released: events before this time."""
    counts: dict[str, int] = {}
    """What was done since the checkpoint began, this step included."""
    seconds: float = 0.0


class Told(msgspec.Struct):
    """What a bucket tells of a step, or all of them together."""

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
        setting: Setting,
        kinds: Mapping[str, Mapping[str, Kind]],
        *,
        bucket_count: int | None = None,
    ) -> SavedJob:
        """What is begun here, or goes on; what would make the state wrong is refused.

        `bucket_count` is the caller's wish; without one it is as it was, or that of `setting`.
        Nothing is written: `keep` does that.
        """
        last = self.last()
        self._refuse_parted(last)
        texts = {one.name: str(one) for one in subscriptions}
        saved = self._saved(last)
        if saved is None:
            own = {topic: dict(found) for topic, found in kinds.items()}
            return SavedJob(VERSION, setting, own, [list(texts)], texts)
        if bucket_count is None:
            setting = msgspec.structs.replace(setting, bucket_count=saved.setting.bucket_count)
        for name, what, shown in _SETTINGS:
            before, now = (shown(getattr(one, name)) for one in (saved.setting, setting))
            if before != now:
                raise UsageError(
                    f"the checkpoint was begun with {what} {before}, and now it is {now}: what is "
                    "kept in it would be wrong",
                    hint=f"put {what} back to {before}, or give another checkpoint folder",
                    place=str(self.folder),
                )
        self._refuse_missing_states(saved, last)
        return reconciled(saved, subscriptions, kinds)

    def keep(self, job: SavedJob) -> None:
        """From here on this is what the checkpoint belongs to."""
        job = msgspec.structs.replace(job, query=self._query())
        path, data = self.folder / "job.json", msgspec.json.format(msgspec.json.encode(job))
        if not path.exists() or path.read_bytes() != data:
            _write(path, data)

    def _saved(self, last: Commit | None) -> SavedJob | None:
        try:
            data = (self.folder / "job.json").read_bytes()
        except FileNotFoundError:
            if last is not None:
                raise self._damaged("job.json is missing") from None
            return None
        try:
            version = msgspec.json.decode(data, type=_Version).version
            if version != VERSION:
                raise UsageError(
                    f"the checkpoint is of format {version}, and this version of Concordant reads "
                    f"and writes {VERSION}",
                    hint="start from an empty checkpoint folder, which replays the input",
                    place=str(self.folder),
                )
            saved = msgspec.json.decode(data, type=SavedJob)
        except msgspec.DecodeError as error:
            raise self._damaged(f"job.json: {error}") from None
        if last is not None and saved.query != last.query:
            raise self._damaged("job.json belongs to another one")
        return saved

    def _refuse_parted(self, last: Commit | None) -> None:
        """Spark's half and ours belong together: with another, events would be skipped unseen."""
        ours = last.batch if last else -1
        begun, done = (self._of_spark(name) for name in ("offsets", "commits"))
        if ours > max(begun, default=-1):
            raise self._damaged("Spark's part of it is missing or older")
        if max(done, default=-1) > ours:
            raise self._damaged("our part of it is missing or older than Spark's")
        if last is not None and last.query != self._query():
            raise self._damaged("Spark's part of it belongs to another one")

    def _query(self) -> str:
        """The name that Spark gave to its half when it began."""
        try:
            data = (self.spark_folder / "metadata").read_bytes()
            return msgspec.json.decode(data, type=_Metadata).id
        except FileNotFoundError:
            return ""
        except msgspec.DecodeError as error:
            raise self._damaged(f"Spark's metadata: {error}") from None

    def _of_spark(self, name: str) -> list[int]:
        """Micro-batches in a log of Spark's."""
        folder = self.spark_folder / name
        return [int(one.name) for one in folder.glob("[0-9]*") if one.name.isdigit()]

    @property
    def spark_folder(self) -> Path:
        """Where Spark keeps its own half."""
        return self.folder.parent / "spark"

    def _refuse_missing_states(self, saved: SavedJob, last: Commit | None) -> None:
        if last is None or saved.setting.adapter != "files":
            return
        for bucket in range(saved.setting.bucket_count):
            if not self._state_path(bucket, last.step, last.run).exists():
                raise self._missing(bucket, last.step)

    def _missing(self, bucket: int, step: int) -> UsageError:
        return self._damaged(f"the state of bucket {bucket} after step {step} is missing")

    def _damaged(self, what: str) -> UsageError:
        return UsageError(
            f"this is no checkpoint of ours, or a damaged one ({what})",
            hint="give another checkpoint folder, or remove this one to start anew",
            place=str(self.folder),
        )

    # --- steps --------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> None:
        """From here on the step has happened."""
        commit.query = self._query()
        _write(self._commit_path(commit.step), msgspec.json.encode(commit))
        for step in self._steps():
            if step <= commit.step - COMMITS_KEPT:
                self._commit_path(step).unlink(missing_ok=True)

    def committed(self, step: int) -> Commit | None:
        """What a step did, if it has happened."""
        try:
            return msgspec.json.decode(self._commit_path(step).read_bytes(), type=Commit)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise self._damaged(f"commit {step}: {error}") from None

    def last(self) -> Commit | None:
        """The newest step that has happened."""
        steps = self._steps()
        return self.committed(max(steps)) if steps else None

    def of_batch(self, batch: int) -> Commit | None:
        """The step of a micro-batch of Spark's, if it has happened not long ago."""
        for step in sorted(self._steps(), reverse=True):
            commit = self.committed(step)
            if commit is None or commit.batch < batch:
                return None
            if commit.batch == batch and not commit.is_end:
                return commit
        return None

    def ends(self) -> list[Commit]:
        """The ends that have happened not long ago."""
        commits = (self.committed(step) for step in sorted(self._steps()))
        return [one for one in commits if one is not None and one.is_end]

    def _steps(self) -> list[int]:
        return [int(one.stem) for one in (self.folder / "commits").glob("[0-9]*.json")]

    def _commit_path(self, step: int) -> Path:
        return self.folder / "commits" / f"{step}.json"

    def begin_end(self, step: int) -> None:
        """Note that a step is an end: whoever starts after a crash completes it before all else."""
        _write(self.folder / "ending", msgspec.json.encode(step))

    def begun_end(self) -> int | None:
        """The step that was begun as an end and has not happened."""
        last = self.last()
        following = last.step + 1 if last else 0
        try:
            step = msgspec.json.decode((self.folder / "ending").read_bytes(), type=int)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise self._damaged(f"ending: {error}") from None
        if step > following:
            raise self._damaged("it is older than its last end of the input")
        return step if step == following else None

    # --- state --------------------------------------------------------------------------------

    def read_state(self, bucket: int, before: Commit | None) -> bytes | None:
        """The state of a bucket after a step; before the first step there is none."""
        if before is None:
            return None
        try:
            whole = self._state_path(bucket, before.step, before.run).read_bytes()
        except FileNotFoundError:
            raise self._missing(bucket, before.step) from None
        return whole[whole.find(b"\n") + 1 :]

    def write_state(
        self, bucket: int, step: int, run: str, state: bytes, told: Told | None = None
    ) -> None:
        """The state of a bucket after a step, and what it tells of that.

        States that nobody can need any more go, and what tasks left that were killed as they wrote.
        """
        line = msgspec.json.encode(told or Told()) + b"\n"
        _write(self._state_path(bucket, step, run), line + state)
        for one in (self.folder / "state" / str(bucket)).glob("*.state"):
            number = one.stem.rpartition(".")[2].partition("-")[0]
            if number.isdecimal() and int(number) <= step - STATES_KEPT:
                one.unlink(missing_ok=True)

    def told(self, step: int, run: str, bucket_count: int) -> Told | None:
        """What all buckets tell of a step in a run; None if one has not been there."""
        total: Counter[str] = Counter()
        one = Told()
        for bucket in range(bucket_count):
            try:
                with self._state_path(bucket, step, run).open("rb") as stream:
                    one = msgspec.json.decode(stream.readline(), type=Told)
            except FileNotFoundError:
                return None
            total.update(one.counts)
        return Told(dict(total), one.marks)

    def _state_path(self, bucket: int, step: int, run: str) -> Path:
        return self.folder / "state" / str(bucket) / f"{step}-{run}.state"


class _Version(msgspec.Struct):
    version: int


class _Metadata(msgspec.Struct):
    id: str


_SETTINGS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("release", "release", repr),
    ("adapter", "adapter", repr),
    ("bucket_count", "buckets", str),
    ("unique_us", "unique", lambda us: repr(duration_text(us)) if us else "off"),
)
"""Settings by their name here and in a pipeline, and how a value is said."""


def reconciled(
    saved: SavedJob,
    wanted: Sequence[Subscription],
    kinds: Mapping[str, Mapping[str, Kind]],
) -> SavedJob:
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
        kinds=_reconciled_kinds(saved.kinds, kinds),
        generations=[*saved.generations, *([added] if added else [])],
        texts={**saved.texts, **texts},
        muted=sorted({*saved.muted, *(known.keys() - texts.keys())}),
    )


def _reconciled_kinds(
    saved: Mapping[str, Mapping[str, Kind]], now: Mapping[str, Mapping[str, Kind]]
) -> dict[str, dict[str, Kind]]:
    """The kinds of attributes, with those that came new; one that changed is refused."""
    found = {topic: dict(attributes) for topic, attributes in saved.items()}
    for topic, attributes in now.items():
        known = found.setdefault(topic, {})
        for name, kind in attributes.items():
            if known.setdefault(name, kind) != kind:
                raise UsageError(
                    f"the attribute '{name}' of topic '{topic}' was {known[name]} when the "
                    f"checkpoint was begun, and now it is {kind}: what is kept would be wrong",
                    hint="cast the column to what it was, or give another checkpoint folder",
                )
    return found


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
