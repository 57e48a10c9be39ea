"""Random ledgers as plain objects, and a query answered over these objects in plain Python."""

import re
from dataclasses import dataclass, field

from hypothesis import strategies as st

from treering.config.canonical import digest_json, short
from treering.store.ledger.models import (
    AttemptRow,
    CheckpointRow,
    CorpusRow,
    LicenceRow,
    NoteRow,
    PromotionRow,
    ReadRow,
    RunRow,
    ScoreRow,
    SourceRow,
    TagRow,
    UnreadRow,
)

WORDS = [
    "code",
    "Code",
    "prose",
    "GPL-3.0",
    "gpl-2.0-only",
    "MIT",
    "Ärger",
    "straße",
    "a b",
    "50%",
    "a_c",
    "abc",
    'q"t',
    "x",
]
TASKS = ["hellaswag", "HellaSwag", "arc"]
NUMBERS = [0.0, 0.25, 0.5, 0.7, 1.0, 100.0]

word = st.sampled_from(WORDS)


@dataclass
class World:
    corpora: dict = field(default_factory=dict)  # digest -> licences, None where they are not known
    runs: list = field(default_factory=list)


@st.composite
def worlds(draw):
    names = draw(st.lists(word, min_size=1, max_size=3, unique=True))
    corpora = {f"sha256:{name}": draw(st.none() | st.lists(word, max_size=2, unique=True)) for name in names}
    runs = []
    for number in range(draw(st.integers(1, 4))):
        checkpoints = [
            {
                "step": draw(st.integers(1, 4)) * 50,
                "status": draw(st.sampled_from(["saved", "removed", "abandoned", "scored"])),
                "tokens": draw(st.sampled_from([None, 100, 1000])),
                "reads": draw(st.lists(st.sampled_from(names), max_size=2, unique=True)),
                "scores": draw(
                    st.dictionaries(
                        st.tuples(st.sampled_from(TASKS), st.sampled_from(["acc", "f1"]), st.sampled_from([-1, 0, 5])),
                        st.sampled_from([None, *NUMBERS]),
                        max_size=3,
                    )
                ),
            }
            for _ in range(draw(st.integers(1, 3)))
        ]
        times = st.sampled_from([1.0, 2.0, 3.0])
        runs.append(
            {
                "key": short(digest_json(number), 16),
                "id": short(digest_json(["id", number]), 16),
                "project": draw(word),
                "experiment": draw(word),
                "state": draw(st.sampled_from(["running", "finished"])),
                "host": draw(word),
                "corpora": draw(st.booleans()),
                "updated_at": draw(st.sampled_from([0.5, 1.5])),
                "checkpoints": checkpoints,
                "notes": draw(st.lists(word, max_size=2)),
                "tags": draw(st.lists(st.tuples(times, word | word.map("owner={}".format), st.booleans()), max_size=3)),
                "promotions": draw(
                    st.lists(st.tuples(times, st.sampled_from(["production", "Test"]), st.integers(0, 2)), max_size=2)
                ),
            }
        )
    return World(corpora, runs)


def checkpoint_key(run, at):
    return f"{run['key']}/{at}"


def digest_of(run, at):
    return f"sha256:{run['key']}{at}"


def rows_of(world):
    """All rows, by table."""
    rows = {model: [] for model in (
        CorpusRow, LicenceRow, RunRow, AttemptRow, CheckpointRow, ReadRow, ScoreRow, NoteRow, TagRow, PromotionRow,
    )}  # fmt: skip
    for digest, licences in world.corpora.items():
        if licences is not None:
            rows[CorpusRow].append({"key": digest, "name": "c", "licence": "c", "documents": 1, "tokens": 1})
            rows[LicenceRow] += [{"corpus": digest, "licence": each, "documents": 1, "tokens": 1} for each in licences]
    for run in world.runs:
        key = run["key"]
        rows[RunRow].append({
            "key": key, "id": run["id"], "digest": "d", "project": run["project"], "experiment": run["experiment"],
            "name": f"{run['experiment']}-{run['id'][:8]}", "trainer": "treering", "state": run["state"],
            "started_at": 0.0, "updated_at": run["updated_at"], "step": 1, "tokens": None, "blend": None,
            "corpora": run["corpora"], "host": run["host"], "folder": "f", "extent": "", "position": "",
            "projection": "", "shipped_at": 0.0,
        })  # fmt: skip
        rows[AttemptRow].append({
            "run": key, "number": 1, "started_at": 0.0, "ended_at": None, "status": None, "reason": None,
            "host": run["host"], "world_size": 1, "code": None, "commit": None, "environment": None,
            "parent_step": None, "on_path": True,
        })  # fmt: skip
        for at, each in enumerate(run["checkpoints"]):
            rows[CheckpointRow].append({
                "key": checkpoint_key(run, at), "run": key, "attempt": 1, "step": each["step"],
                "digest": digest_of(run, at), "status": each["status"], "tokens": each["tokens"], "bytes": None,
                "created_at": None, "place": None,
            })  # fmt: skip
            rows[ReadRow] += [
                {"checkpoint": checkpoint_key(run, at), "corpus": f"sha256:{name}", "name": name, "samples": 1,
                 "tokens": 1, "epochs": 1.0} for name in each["reads"]
            ]  # fmt: skip
            rows[ScoreRow] += [
                {"checkpoint": checkpoint_key(run, at), "task": task, "metric": metric, "shots": shots, "value": value,
                 "stderr": None} for (task, metric, shots), value in each["scores"].items()
            ]  # fmt: skip
        rows[NoteRow] += [
            {"key": f"{key}{at}", "run": key, "at": 1.0, "by": "ada", "host": None, "text": text,
             "folded": text.casefold(), "origin": "run"} for at, text in enumerate(run["notes"])
        ]  # fmt: skip
        rows[TagRow] += [
            {"key": f"{key}{at}", "run": key, "at": when, "by": "ada", "host": None, "tag": tag, "given": given,
             "origin": "run"} for at, (when, tag, given) in enumerate(run["tags"])
        ]  # fmt: skip
        rows[PromotionRow] += [
            {"key": f"{key}{at}", "run": key, "alias": alias, "checkpoint": digest_of(run, which), "step": 1,
             "at": when, "by": "ada", "level": "recorded", "required": "recorded"}
            for at, (when, alias, which) in enumerate(run["promotions"])
        ]  # fmt: skip
    return rows


def fill(connection, world):
    """Makes a ledger's rows those of a world."""
    for model in (
        UnreadRow, SourceRow, PromotionRow, TagRow, NoteRow, ScoreRow, ReadRow, CheckpointRow, AttemptRow, RunRow,
        LicenceRow, CorpusRow,
    ):  # fmt: skip
        connection.execute(model.__table__.delete())
    for model, rows in rows_of(world).items():
        if rows:
            connection.execute(model.__table__.insert(), rows)


quoted = st.sampled_from([*WORDS, "G*", "*o*", "?PL*", "a?c", "co", "o", "*"])
TEXTS = [
    "project",
    "experiment",
    "state",
    "host",
    "tag",
    "tag.owner",
    "note",
    "corpus",
    "licence",
    "promoted",
    "checkpoint",
]
VALUES = {
    "state": ["running", "FIN*", "x"],
    "promoted": ["production", "test", "*"],
    "checkpoint": ["saved", "*ed", "abandoned"],
}


@st.composite
def terms(draw):
    """A term: text, negated, field, operator, values."""
    negated = draw(st.booleans())
    name = draw(st.sampled_from([*TEXTS, *TEXTS, "word", "step", "tokens", "updated", "score"]))
    if name == "word":
        value = draw(quoted)
        return (negated, name, ":", [value], f"{'-' * negated}{written(value)}")
    if name in TEXTS:
        values = draw(st.lists(st.sampled_from(VALUES[name]) if name in VALUES else quoted, min_size=1, max_size=2))
        sign = draw(st.sampled_from([":", "=", "!="]))
        text = f"{'-' * negated}{name}{sign}{','.join(map(written, values))}"
        return (negated ^ (sign == "!="), name, ":", values, text)
    if name == "updated":
        sign = draw(st.sampled_from([">", ">=", "<", "<=", ":"]))
        return (negated, name, sign, [(0.0, 59.999)], f"{'-' * negated}updated{sign}1970-01-01T00:00")
    shown = name
    if name == "score":
        part = draw(st.sampled_from(["hellaswag", "hella*", "arc.acc", "arc@0", "*.f1@5", "none"]))
        name, shown = f"score.{part}", f"score.{part}"
    sign = draw(st.sampled_from([">", ">=", "<", "<=", ":", "=", "!="]))
    value = draw(st.sampled_from([0.25, 0.5, 50.0, 99.5, 100.0, 1000.0]))
    text = f"{'-' * negated}{shown}{sign}{value!r}"
    return (negated ^ (sign == "!="), name, ":" if sign in {"=", "!="} else sign, [(value, value)], text)


def written(value):
    return '"' + value.replace('"', '""') + '"'


def fits(pattern, text, inside=False):
    signs = {"*": ".*", "?": "."}
    body = "".join(signs.get(sign) or re.escape(sign.casefold()) for sign in pattern)
    return re.fullmatch(f".*{body}.*" if inside else body, text.casefold(), re.DOTALL) is not None


def any_fits(values, texts, inside=False):
    return any(fits(value, text, inside) for value in values for text in texts)


def compare(value, sign, spans):
    ((low, high),) = spans
    return {
        ":": low <= value <= high, ">": value > high, ">=": value >= low, "<": value < low, "<=": value <= high,
    }[sign]  # fmt: skip


def tags_of(run):
    newest = {}
    for _, (_, tag, given) in sorted(enumerate(run["tags"]), key=lambda each: (each[1][0], each[0])):
        newest[tag] = given
    return [tag for tag, given in newest.items() if given]


def holders(world):
    """(project, experiment, alias) -> digest of the checkpoint that holds it."""
    held = {}
    for run in world.runs:
        for at, (when, alias, which) in enumerate(run["promotions"]):
            place = (run["project"], run["experiment"], alias)
            held[place] = max(held.get(place, (0, "", "")), (when, f"{run['key']}{at}", digest_of(run, which)))
    return {place: digest for place, (_, _, digest) in held.items()}


def texts_of(world, run, at, name):
    """The texts that a term about texts is compared with, and whether they are all there are."""
    each = run["checkpoints"][at]
    read = [f"sha256:{corpus}" for corpus in each["reads"]]
    here = (run["project"], run["experiment"])
    of = digest_of(run, at)
    held = [alias for (*place, alias), digest in holders(world).items() if (*place,) == here and digest == of]
    licences = [text for digest in read for text in world.corpora.get(digest) or ()]
    known = run["corpora"] and all(world.corpora.get(digest) is not None for digest in read)
    return {
        "tag": (tags_of(run), True),
        "tag.owner": ([tag.removeprefix("owner=") for tag in tags_of(run) if tag.startswith("owner=")], True),
        "note": (run["notes"], True),
        "word": ([f"{run['experiment']}-{run['id'][:8]}", *tags_of(run), *run["notes"]], True),
        "corpus": (each["reads"], run["corpora"]),
        "licence": (licences, known),
        "promoted": (held, True),
        "checkpoint": ([each["status"]], True),
    }.get(name) or ([run[name]], True)


def judge(world, run, at, term):
    """Whether a term holds of a checkpoint: True, False, or None where it is not known."""
    negated, name, sign, values, _ = term
    each = run["checkpoints"][at]
    if name == "updated":
        found = compare(run["updated_at"], sign, values)
    elif name in {"step", "tokens"}:
        found = each[name] is not None and compare(each[name], sign, values)
    elif name.startswith("score."):
        part = name.removeprefix("score.")
        found = any(
            value is not None and compare(value, sign, values)
            for (task, metric, shots), value in each["scores"].items()
            if any_fits([part], [task, f"{task}.{metric}", f"{task}@{shots}", f"{task}.{metric}@{shots}"])
        )
    else:
        texts, known = texts_of(world, run, at, name)
        found = any_fits(values, texts, inside=name in {"note", "word"}) or (False if known else None)
    return None if found is None else found ^ negated


def answer(world, asked):
    """Keys of the checkpoints that fit, and how many are undecided."""
    of_checkpoint = {"corpus", "licence", "promoted", "checkpoint", "step", "tokens"}
    each = any(term[1] in of_checkpoint or term[1].startswith("score.") for term in asked)
    found, undecided = set(), 0
    for run in world.runs:
        places = range(len(run["checkpoints"]))
        if not any(term[1] == "checkpoint" for term in asked):
            places = [at for at in places if run["checkpoints"][at]["status"] != "abandoned"]
        if not each:
            places = sorted(places, key=lambda at: (run["checkpoints"][at]["step"], checkpoint_key(run, at)))[-1:]
        for at in places:
            verdicts = [judge(world, run, at, term) for term in asked]
            if all(verdicts):
                found.add(checkpoint_key(run, at))
            elif False not in verdicts:
                undecided += 1
    return found, undecided
