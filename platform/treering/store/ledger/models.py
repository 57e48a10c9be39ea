"""The tables of the ledger.

Keys are made of content, never counted: a ledger that is made again has the same rows. A change here needs a migration
in `migrations/versions/`; a test compares both.

Number columns are NULL where a number is not known, or where it is not finite.
"""

from typing import Final

from sqlalchemy import BigInteger, Float, ForeignKey, Index, MetaData, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

_NAMES: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """The tables, with one type for each kind of value in both databases."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {str: Text(), int: BigInteger(), float: Float(53)}  # noqa: RUF012 - as SQLAlchemy documents it


def _of(table: str) -> ForeignKey:
    return ForeignKey(f"{table}.key", ondelete="CASCADE")


class RunRow(Base):
    """A run: one training, whatever machine its folder is on.

    `key` names the run and its first attempt: the same recipe trained twice is two runs. `corpora` tells whether it is
    known which corpora the run reads. `extent` is how far the folder had come, `position` how its files looked, and
    `projection` has the digest of the run's rows in each table.
    """

    __tablename__ = "ledger_run"

    key: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(index=True)
    digest: Mapped[str]
    project: Mapped[str] = mapped_column(index=True)
    experiment: Mapped[str] = mapped_column(index=True)
    name: Mapped[str]
    trainer: Mapped[str]
    state: Mapped[str]
    started_at: Mapped[float]
    updated_at: Mapped[float] = mapped_column(index=True)
    step: Mapped[int]
    tokens: Mapped[int | None]
    blend: Mapped[str | None]
    corpora: Mapped[bool]
    host: Mapped[str]
    folder: Mapped[str]
    extent: Mapped[str]
    position: Mapped[str]
    projection: Mapped[str]
    shipped_at: Mapped[float]


class AttemptRow(Base):
    """An attempt of a run. `on_path`: its rings lead to the newest state of the run."""

    __tablename__ = "ledger_attempt"

    run: Mapped[str] = mapped_column(_of("ledger_run"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    started_at: Mapped[float]
    ended_at: Mapped[float | None]
    status: Mapped[str | None]
    reason: Mapped[str | None]
    host: Mapped[str]
    world_size: Mapped[int]
    code: Mapped[str | None]
    commit: Mapped[str | None]
    environment: Mapped[str | None]
    parent_step: Mapped[int | None]
    on_path: Mapped[bool]


class CheckpointRow(Base):
    """A state of a run's model: a checkpoint, or a step that was scored without one.

    `status` is `saved`, `removed`, `abandoned` (a later attempt went on from before it), `scored` (no checkpoint was
    saved at the step), or `unsaved`: the newest step of a run that has neither.
    """

    __tablename__ = "ledger_checkpoint"

    key: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(_of("ledger_run"), index=True)
    attempt: Mapped[int | None]
    step: Mapped[int]
    digest: Mapped[str | None] = mapped_column(index=True)
    status: Mapped[str]
    tokens: Mapped[int | None]
    bytes: Mapped[int | None]
    created_at: Mapped[float | None]
    place: Mapped[str | None]


class CorpusRow(Base):
    """A corpus that was looked into, by its digest."""

    __tablename__ = "ledger_corpus"

    key: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    licence: Mapped[str]
    documents: Mapped[int]
    tokens: Mapped[int]


class LicenceRow(Base):
    """How many documents and tokens of a corpus are under a licence."""

    __tablename__ = "ledger_licence"

    corpus: Mapped[str] = mapped_column(_of("ledger_corpus"), primary_key=True)
    licence: Mapped[str] = mapped_column(primary_key=True)
    documents: Mapped[int]
    tokens: Mapped[int]


class ReadRow(Base):
    """What a checkpoint read of a corpus; samples, tokens and epochs are NULL where nobody counted them."""

    __tablename__ = "ledger_read"

    checkpoint: Mapped[str] = mapped_column(_of("ledger_checkpoint"), primary_key=True)
    corpus: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    samples: Mapped[int | None]
    tokens: Mapped[int | None]
    epochs: Mapped[float | None]


class ScoreRow(Base):
    """A score of a checkpoint; `shots` is -1 where the trainer said none."""

    __tablename__ = "ledger_score"
    __table_args__ = (Index(None, "task", "metric", "value"),)

    checkpoint: Mapped[str] = mapped_column(_of("ledger_checkpoint"), primary_key=True)
    task: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    shots: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    stderr: Mapped[float | None]


class NoteRow(Base):
    """A note about a run; `folded` is its text for a search that ignores case.

    `origin` is `run` for a note of the run's journal, `ledger` for a note that is only here.
    """

    __tablename__ = "ledger_note"

    key: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(_of("ledger_run"), index=True)
    at: Mapped[float]
    by: Mapped[str]
    host: Mapped[str | None]
    text: Mapped[str]
    folded: Mapped[str]
    origin: Mapped[str]


class TagRow(Base):
    """A tag that was given to a run, or taken from it; the newest row of a tag decides. `origin` as for notes."""

    __tablename__ = "ledger_tag"

    key: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(_of("ledger_run"), index=True)
    at: Mapped[float]
    by: Mapped[str]
    host: Mapped[str | None]
    tag: Mapped[str]
    given: Mapped[bool]
    origin: Mapped[str]


class PromotionRow(Base):
    """A promotion of a checkpoint, from the run's journal; the newest one of an experiment and alias holds."""

    __tablename__ = "ledger_promotion"

    key: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(_of("ledger_run"), index=True)
    alias: Mapped[str]
    checkpoint: Mapped[str]
    step: Mapped[int]
    at: Mapped[float]
    by: Mapped[str]
    level: Mapped[str]
    required: Mapped[str]


class SourceRow(Base):
    """A project's folder on a machine, and when its shipper last looked."""

    __tablename__ = "ledger_source"

    key: Mapped[str] = mapped_column(primary_key=True)
    project: Mapped[str]
    host: Mapped[str]
    folder: Mapped[str]
    seen_at: Mapped[float]


class UnreadRow(Base):
    """A run's folder that a shipper could not read, and why."""

    __tablename__ = "ledger_unread"

    source: Mapped[str] = mapped_column(_of("ledger_source"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    problem: Mapped[str]
    at: Mapped[float]
