import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from treering.config.corpora import CorpusConfig, WheelConfig
from treering.data.sources import Intake, read_corpus
from treering.errors import UserError

Builder = Callable[[Path, str, str, dict[str, bytes]], WheelConfig]


def own(path: Path, text: str) -> CorpusConfig:
    path.write_text(text, encoding="utf-8")
    return CorpusConfig(name="own", licence="CC0-1.0", jsonl=f"texts/{path.name}")


def test_jsonl_keeps_source_licence_and_line(tmp_path: Path) -> None:
    text = '{"id": "a", "text": "x"}\n\n{"id": 7, "text": "y", "source": "https://e.org", "licence": "MIT"}\n'
    corpus = own(tmp_path / "own.jsonl", text)
    first, second = read_corpus(corpus, tmp_path, Intake())
    assert (first.id, first.offset, first.licence) == ("a", 0, "CC0-1.0")
    assert first.source == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    assert (second.id, second.offset, second.licence, second.source) == ("7", 2, "MIT", "https://e.org")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: no valid JSON"),
        ("[1]", "line 2: found list"),
        ('{"text": "x"}', "line 2: id is None"),
        ('{"id": "b", "text": 5}', "line 2: text is 5"),
        ('{"id": "b", "text": "t", "source": 3}', "line 2: source is 3"),
        ('{"id": "a", "text": "t"}', "found id 'a' twice"),
    ],
)
def test_bad_jsonl_names_the_line(tmp_path: Path, line: str, message: str) -> None:
    corpus = own(tmp_path / "own.jsonl", '{"id": "a", "text": "x"}\n' + line + "\n")
    with pytest.raises(UserError, match=message):
        list(read_corpus(corpus, tmp_path, Intake()))


def test_cap_takes_files_in_hash_order_up_to_the_document_that_crosses_it(
    tmp_path: Path, wheel_builder: Builder
) -> None:
    files = {f"pkg/m{number}.py": b"#" * 400_000 for number in range(8)}
    wheel = wheel_builder(tmp_path, "pkg", "1.0", files)
    corpus = CorpusConfig(name="code", licence="MIT", kind="code", reader="python", wheels=(wheel,), max_megabytes=1)
    intake = Intake()
    taken = [document.id for document in read_corpus(corpus, tmp_path, intake)]
    by_hash = sorted(files, key=lambda name: hashlib.sha256(name.encode()).digest())
    assert taken == by_hash[:3] != sorted(files)[:3]
    assert (intake.num_documents, intake.num_bytes, intake.num_files_read, intake.num_files) == (3, 1_200_000, 3, 8)


def test_wheel_documents_say_where_they_come_from(tmp_path: Path, wheel_builder: Builder) -> None:
    wheel = wheel_builder(tmp_path, "my-pkg", "1.0", {"my_pkg/a.py": b"pass"})
    corpus = CorpusConfig(name="code", licence="MIT", reader="python", wheels=(wheel,))
    [document] = read_corpus(corpus, tmp_path, Intake())
    assert (document.source, document.offset) == ("pkg:pypi/my-pkg@1.0#my_pkg/a.py", 0)


def test_missing_wheel_names_the_command(tmp_path: Path) -> None:
    wheel = WheelConfig(package="none", version="1", sha256="0" * 64)
    corpus = CorpusConfig(name="code", licence="MIT", reader="python", wheels=(wheel,))
    with pytest.raises(UserError, match="no wheel none-1; run `treering fetch` first"):
        list(read_corpus(corpus, tmp_path, Intake()))


def test_a_declared_corpus_has_no_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="books is declared"):
        list(read_corpus(CorpusConfig(name="books", licence="x", declared_tokens=5), tmp_path, Intake()))
