"""Web archives: which records become documents, and how a page is decoded."""

import gzip
import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import brotli
import pytest
import pyzstd
from corpus_documents import read_corpus
from prose_text import make_text
from web_archive import ADDRESS, DATE, Answer, Record, archive, crawl, fetched, page, record_id, write

from treering.config.corpora import CorpusConfig
from treering.data.curate.engines import ProcessEngine
from treering.data.curate.extract import extract
from treering.data.curate.html_limits import without_formatting
from treering.data.curate.pipeline import curate
from treering.data.sources.documents import Intake, RawDocument
from treering.data.sources.fetch import fetch
from treering.data.sources.html_bytes import MAX_BYTES, dechunked, decoded, html_text
from treering.data.sources.own_text import own_names
from treering.errors import NotFoundError, UserError
from treering.project import Project

HTML = {"Content-Type": "text/html"}


def corpus_of(**source: Any) -> CorpusConfig:
    kind = "html" if "warc" in source else "prose"
    return CorpusConfig(name="web", licence="unknown", **{"kind": kind, **source})


def read(folder: Path, data: bytes, **source: Any) -> tuple[list[RawDocument], Intake]:
    [name] = source.values()
    write(folder / name, data)
    intake = Intake()
    return list(read_corpus(corpus_of(**source), folder, intake)), intake


def deflated(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


TEXT = "<p>Grüße aus Köln</p>"
ENCODINGS = {
    "/plain": Answer(TEXT.encode()),
    "/chunked": Answer(TEXT.encode(), chunked=True),
    "/gzip": Answer(gzip.compress(TEXT.encode()), {**HTML, "Content-Encoding": "gzip"}),
    "/x-gzip": Answer(gzip.compress(TEXT.encode()), {**HTML, "Content-Encoding": "X-GZIP"}, chunked=True),
    "/zlib": Answer(zlib.compress(TEXT.encode()), {**HTML, "Content-Encoding": "deflate"}),
    "/deflate": Answer(deflated(TEXT.encode()), {**HTML, "Content-Encoding": "deflate"}),
    "/br": Answer(brotli.compress(TEXT.encode()), {**HTML, "Content-Encoding": "br"}),
    "/zstd": Answer(pyzstd.compress(TEXT.encode()), {**HTML, "Content-Encoding": "zstd"}),
    "/twice": Answer(brotli.compress(gzip.compress(TEXT.encode())), {**HTML, "Content-Encoding": "gzip, br"}),
    "/none": Answer(TEXT.encode(), {**HTML, "Content-Encoding": "identity"}),
    "/taken-off": Answer(TEXT.encode(), {**HTML, "Content-Encoding": "gzip"}),
    "/invented": Answer(TEXT.encode(), {**HTML, "Content-Encoding": "utf-8"}),
    "/members": Answer(
        gzip.compress(TEXT[:5].encode()) + gzip.compress(TEXT[5:].encode()) + b"rest",
        {**HTML, "Content-Encoding": "gzip"},
    ),
    "/frames": Answer(
        pyzstd.compress(TEXT[:5].encode()) + pyzstd.compress(TEXT[5:].encode()), {**HTML, "Content-Encoding": "zstd"}
    ),
    "/frame": Answer(pyzstd.compress(TEXT.encode()) + b"rest", {**HTML, "Content-Encoding": "zstd"}),
    "/unnamed": Answer(gzip.compress(TEXT.encode()), HTML),
    "/transfer": Answer(gzip.compress(TEXT.encode()), {**HTML, "Transfer-Encoding": "gzip"}),
    "/xhtml": Answer(TEXT.encode(), {"Content-Type": "application/xhtml+xml"}),
    "/header": Answer(TEXT.encode("cp1252"), {"Content-Type": "text/html; Charset='ISO-8859-1'"}),
}


def test_a_page_is_read_through_every_encoding_of_its_content(tmp_path: Path) -> None:
    responses = fetched(ENCODINGS)
    documents, intake = read(tmp_path, archive(crawl(responses)), warc="a.warc.gz")
    assert {each.source.removeprefix(ADDRESS): each.text for each in documents} == dict.fromkeys(ENCODINGS, TEXT)
    assert [each.id for each in documents] == [f"{record_id(2 + 3 * place)}@{DATE}" for place in range(len(ENCODINGS))]
    count = len(ENCODINGS)
    assert intake.skipped == {"type warcinfo": 1, "type request": count, "type metadata": count}
    plain, _ = read(tmp_path, archive(crawl(responses), compressed=False), warc="a.warc")
    assert [(each.id, each.text) for each in plain] == [(each.id, each.text) for each in documents]
    assert (tmp_path / "a.warc").read_bytes()[plain[3].offset :].startswith(b"WARC/1.0\r\n")
    assert gzip.decompress((tmp_path / "a.warc.gz").read_bytes()[documents[3].offset :]).startswith(b"WARC/1.0\r\n")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"3\r\n<p>\r\n2\r\nab\r\n0\r\n\r\n", b"<p>ab"),
        (b"3\r\n<p>\r\n0\r\nX-Checksum: abc\r\n\r\n", b"<p>"),
        (b"3\n<p>\n0\n\n", b"<p>"),
        (b"3\r\n<p>\r\n0\r\n", b"<p>"),
        (b"3\r\n<p>\r\n5", b"<p>"),  # cut off in a size
        (b"9\r\n<p>a", b"<p>a"),  # and in a chunk
        (b"3;" + b"e" * 99 + b"\r\n<p>\r\n0\r\n\r\n", b"<p>"),
        (b"d\r\n3\r\n<p>\r\n0\r\n\r\n\r\n0\r\n\r\n", b"<p>"),  # twice
        (b"0\r\n\r\n", b""),
        (b"<p>not chunked\n3\n", b"<p>not chunked\n3\n"),
        (b"", b""),
    ],
)
def test_chunks_leave_nothing_in_a_page(body: bytes, expected: bytes) -> None:
    assert dechunked(body) == expected


def test_what_is_no_page_is_counted_by_its_reason(tmp_path: Path) -> None:
    answers = {
        "/moved": Answer(b"", status=301),
        "/gone": Answer(page("x"), status=404),
        "/lost": Answer(page("x"), status=404),
        "/image": Answer(b"\x89PNG", {"Content-Type": "image/png"}),
        "/untyped": Answer(page("x"), {}),
        "/broken": Answer(b"\x1f\x8b\x08\0\0\0", {**HTML, "Content-Encoding": "gzip"}),
        "/secret": Answer(b"secret", {**HTML, "Content-Encoding": "aes"}),
        "/not-br": Answer(b"\xff\xff\xff", {**HTML, "Content-Encoding": "br"}),
        "/chunk": Answer(bytes(2 * MAX_BYTES + 2), chunked=True),
        "/bomb": Answer(gzip.compress(bytes(MAX_BYTES + 1)), {**HTML, "Content-Encoding": "gzip"}),
    }
    records = [Record(each, path=path) for path, each in fetched(answers).items()]
    records += [
        Record(b"127.0.0.1", media_type="text/dns"),
        Record(b"no head of HTTP"),
        Record(b""),
        Record(b"x", "resource", media_type="text/html"),
        Record(b"x", "novel"),
    ]
    documents, intake = read(tmp_path, archive(records), warc="a.warc.gz")
    assert [each.source for each in documents] == [f"{ADDRESS}/broken"]  # cut off before its first byte
    assert intake.skipped == {
        "status 301": 1, "status 404": 2, "not HTML": 2, "content encoding": 2, "larger than 16 MiB": 2, "not HTTP": 1,
        "without HTTP status": 2, "type resource": 1, "type unknown": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"\xef\xbb\xbf<p>\xc3\xa9", "text/html; charset=iso-8859-1", "<p>é"),  # the mark is stronger than the header
        (b"\xff\xfe" + "<p>é".encode("utf-16-le"), "", "<p>é"),
        (b"\xfe\xff" + "<p>é".encode("utf-16-be"), "", "<p>é"),
        ("<p>é".encode("utf-16-le"), "text/html; charset=utf-16", "<p>é"),
        (b"<meta charset=utf-8><p>\xe9", "text/html; charset=latin1", "<meta charset=utf-8><p>é"),
        (b"<meta charset='windows-1251'>\xef\xf0\xe8", "text/html", "<meta charset='windows-1251'>при"),
        (b"<meta charset='utf-16'>\xc3\xa9", "", "<meta charset='utf-16'>é"),
        (b"<p>\x93quoted\x94", "text/html; charset=us-ascii", "<p>\u201cquoted\u201d"),
        (b"\x87\x40", "text/html; charset=Shift_JIS", "①"),
        (b"<meta charset=nonsense><p>\xc3\xa9", "text/html; charset=bogus", "<meta charset=nonsense><p>é"),
        (b"cut off \xc3", "text/html; charset=utf-8", "cut off \ufffd"),
        ("Привет, мир: это текст без указания кодировки. ".encode("cp1251") * 9, "text/html",
         "Привет, мир: это текст без указания кодировки. " * 9),
        (b"", "", ""),
    ],
)  # fmt: skip
def test_a_charset_is_found_as_a_browser_finds_it(body: bytes, content_type: str, expected: str) -> None:
    assert html_text(body, content_type) == expected


def test_a_body_that_is_cut_off_gives_what_is_there() -> None:
    plain = b"".join(b"<p>%d</p>" % number for number in range(9999))
    for encoding, packed in (("gzip", gzip.compress(plain)), ("br", brotli.compress(plain, quality=5))):
        part = decoded(packed[: len(packed) // 2], encoding)
        assert part is not None
        assert len(part) > 999
        assert plain.startswith(part)


def test_texts_of_a_wet_file(tmp_path: Path) -> None:
    records = [
        Record(b"software: test\r\n", "warcinfo", media_type="application/warc-fields"),
        Record("Grüße".encode(), "conversion", "/a", "text/plain"),
        Record(b"<p>x", "conversion", "/b", "text/html"),
        Record(bytes(MAX_BYTES + 1), "conversion", "/c", "text/plain"),
    ]
    documents, intake = read(tmp_path, archive(records), wet="a.warc.wet.gz")
    assert [(each.id, each.text, each.source) for each in documents] == [
        (f"{record_id(1)}@{DATE}", "Grüße", f"{ADDRESS}/a")
    ]
    assert intake.skipped == {"type warcinfo": 1, "not plain text": 1, "larger than 16 MiB": 1}


def test_a_record_without_id_is_named_by_file_and_byte(tmp_path: Path) -> None:
    data = archive([Record(b"x", "conversion", "/a", "text/plain")], compressed=False)
    lines = [line for line in data.split(b"\r\n") if not line.startswith((b"WARC-Record-ID", b"WARC-Target-URI"))]
    [document], _ = read(tmp_path, b"\r\n".join(lines), wet="a.wet")
    assert (document.id, document.source[:7]) == ("a.wet:1", "sha256:")
    data = data.replace(record_id(0).encode(), b" ")
    documents, _ = read(tmp_path, data * 2, wet="a.wet")
    assert [each.id for each in documents] == ["a.wet:1", f"a.wet:{len(data) + 1}"]


@pytest.mark.parametrize("field", ["WARC-Truncated: length", "WARC-Segment-Number: 1"])
def test_a_page_that_the_crawler_cut_off_is_taken_and_counted(tmp_path: Path, field: str) -> None:
    data = archive([Record(b"x", "conversion", "/a", "text/plain"), Record(b"y", "conversion")], compressed=False)
    cut = data.replace(b"WARC-Date", f"{field}\r\nWARC-Date".encode(), 1)
    documents, intake = read(tmp_path, cut, wet="a.wet")
    assert ([each.text for each in documents], intake.noted) == (["x"], {"cut off by the crawler": 1})
    assert intake.skipped == {"not plain text": 1}
    assert read(tmp_path, data, wet="a.wet")[1].noted == {}


def test_the_same_record_twice_is_refused(tmp_path: Path) -> None:
    data = archive([Record(b"x", "conversion", "/a", "text/plain")])
    with pytest.raises(UserError, match=rf"a\.wet\.gz, record at byte {len(data)}: found id .* leave one out"):
        read(tmp_path, data * 2, wet="a.wet.gz")


def test_which_text_of_a_page_is_taken() -> None:
    text = "The people of the town were in the house, and they had a lot of things to say to all of the others. " * 3
    html = page(text).decode()
    assert "About us" in extract(html, "html")
    assert extract(html, "html", "main") == text.strip()
    assert extract(html, "html", "justext") == text.strip()
    declared = f"<?xml version='1.0' encoding='iso-8859-1'?>\n{page(text.replace('people', 'élèves')).decode()}"
    assert extract(declared, "html", "justext") == text.replace("people", "élèves").strip()
    for empty in ("", " ", "<!-- none -->", "<p>", "<script>x()</script>", "<select><option>"):
        assert extract(empty, "html", "justext") == extract(empty, "html", "main") == ""
    assert extract("<select><select>x", "html", "justext") == ""


def test_a_page_of_any_depth_is_read_in_time() -> None:
    menu = "<nav><a href='/'>Home</a></nav>"
    for tags in ("<p>x<br>", "<li>x", "<div>x</div>"):
        assert extract(f"<body>{menu}<main>{tags * 6_000}</main>", "html", "main").startswith(("x", "• x"))
    noted: Counter[str] = Counter()
    assert extract(f"<body>{menu}" + "<DIV>" * 200_000 + "x", "html", "main", noted).split() == ["Home", "x"]
    assert noted == {"all text, nested too deeply": 1}


SENTENCE = "The people of the town were in the house, and they had a lot of things to say to all of the others. "


@pytest.mark.parametrize(
    "between", ["", "</b></I>", "<!--</font>-->", "<script></font></script>", "<a x='</font>'></a>"]
)
def test_formatting_that_is_never_closed_takes_no_memory(between: str) -> None:
    html = "".join(f"<font color=c{number}>{between}<p>w" for number in range(10_000))
    noted: Counter[str] = Counter()
    assert extract(html, "html", noted=noted) == "\n\n".join("w" * 10_000)
    assert noted == {"without formatting tags": 1}


@pytest.mark.parametrize(
    "html",
    [
        "<font color=c><p>w" * 3_000,  # with the same attributes three stay open
        "".join(f"<p><font color=c{number}>w</font></p>" for number in range(3_000)),
        "<!--" + "".join(f"<font color=c{number}>" for number in range(3_000)) + "--><p>w",
        "<p>w<b></b><i></i><a href='/'>x</a></p>" * 3_000,
    ],
)
def test_other_formatting_is_left_to_the_parser(html: str) -> None:
    noted: Counter[str] = Counter()
    assert extract(html, "html", noted=noted) == extract(without_formatting(html), "html")
    assert not noted


def test_text_beyond_the_limits_of_justext_is_taken_and_counted() -> None:
    good = f"<p>{SENTENCE * 4}</p>"
    nested = f"{good}{'<div>' * 260}{good}{'</div>' * 260}{good}"
    noted: Counter[str] = Counter()
    assert extract(nested, "html", "justext", noted) == "\n".join([(SENTENCE * 4).strip()] * 3)
    long = f"{good}<script>{'x' * 11_000_000}</script>{good}"
    assert extract(long, "html", "justext", noted) == "\n".join([(SENTENCE * 4).strip()] * 2)
    assert not noted
    deeper = f"{good}{'<div>' * 3_000}{good}"
    assert extract(deeper, "html", "justext", noted).split("\n\n") == [(SENTENCE * 4).strip()] * 2
    assert noted == {"all text, beyond the limits of jusText's parser": 1}


def test_form_and_pattern_name_files(tmp_path: Path) -> None:
    project = Project(tmp_path)
    data = archive(crawl(fetched({"/a": Answer(page("x"))})))
    write(tmp_path / "crawl/segment/a.warc.gz", data)
    write(tmp_path / "crawl/segment/a.warc.wet.gz", data)
    corpus = corpus_of(warc="crawl")
    fetch([corpus], project, say=lambda _: None)
    assert len(list(read_corpus(corpus, project.raw / "web", Intake()))) == 1
    write(tmp_path / "v1.0/segment/a.warc.gz", data)
    fetch([corpus_of(warc="v1.0")], project, say=lambda _: None)
    assert own_names(corpus_of(warc="v1.0"), project.raw / "web") == ["segment/a.warc.gz"]
    with pytest.raises(UserError, match=r"does not hold other\.warc; run `treering fetch` first"):
        own_names(corpus_of(warc="other.warc"), project.raw / "web")
    with pytest.raises(NotFoundError, match=r"warc: .*matches no file .*expected a WARC file, a folder of such files"):
        fetch([corpus_of(warc="crawl/*.warc")], project, say=lambda _: None)
    with pytest.raises(NotFoundError, match=r"holds no file with the ending \.wet, \.wet\.gz"):
        fetch([corpus_of(wet=str(write(tmp_path / "empty/a.txt", b"").parent))], project, say=lambda _: None)


@pytest.mark.slow
def test_an_archive_is_curated_with_its_evidence_at_every_size_of_a_shard(tiny: Any) -> None:
    answers = {f"/{seed}": Answer(page(make_text(3000 + seed))) for seed in range(30)}
    answers |= {"/gone": Answer(b"gone", status=410), "/copy": answers["/3"]}
    deep = "<div>" * 6_000 + page(make_text(5)).decode()
    answers["/deep"] = Answer(deep.encode())
    records = crawl(fetched(answers))
    folder = tiny.project.raw / "web"
    for number, part in enumerate((records[:40], records[40:])):
        write(folder / f"{number}.warc.gz", archive(part, first=number * 40))
    web = corpus_of(warc="crawl/*.warc.gz")
    write(tiny.project.raw / "capped" / "a.warc.gz", archive(records[40:]))
    capped = web.model_copy(update={"name": "capped", "warc": "a.warc.gz", "max_megabytes": 0.012})
    said: list[str] = []

    def curated(shard_bytes: int) -> dict[str, bytes]:
        curate([capped, web], tiny.config, tiny.project, said.append, engine=ProcessEngine(), shard_bytes=shard_bytes)
        files = sorted(path for path in tiny.project.curated.rglob("*") if path.is_file())
        return {str(path.relative_to(tiny.project.curated)): path.read_bytes() for path in files}

    expected = curated(1 << 40)
    assert expected == curated(4_000)
    assert "no documents     web: 68 records: 33 type request, 33 type metadata, 1 type warcinfo, 1 status 410" in said
    assert "not as usual     web: documents: 1 all text, nested too deeply" in said
    found = json.loads(expected["summary.json"])["corpora"]
    assert found["web"]["taken"]["documents"] == 32
    assert found["web"]["taken"]["noted"] == {"all text, nested too deeply": 1}
    skipped = {"status 410": 1, "type metadata": 33, "type request": 33, "type warcinfo": 1}
    assert found["web"]["taken"]["skipped"] == skipped
    assert found["web"]["dropped"]["dedup"] == {"exact": 8}
    taken = found["capped"]["taken"]
    assert 12_000 <= taken["bytes"] < 14_500
    assert taken["skipped"] == {"type metadata": taken["documents"] - 1, "type request": taken["documents"]}
    [extraction, *_] = json.loads(expected["provenance/web.json"])
    assert extraction["parameters"] == {"cap_bytes": None, "extraction": "main", "kind": "html", "reader": "warc"}


def test_pages_without_an_english_sentence_ask_for_another_extraction(tiny: Any) -> None:
    german = page("Die Leute der Stadt waren in dem Haus, und sie hatten sich eine Menge zu erzählen. " * 3)
    write(tiny.project.raw / "web" / "a.warc.gz", archive(crawl(fetched({"/": Answer(german)}))))
    corpus = corpus_of(warc="a.warc.gz", extraction="justext")
    with pytest.raises(UserError, match=r"no text in 1 documents after extraction as html \(justext\), .*`extraction`"):
        curate([corpus], tiny.config, tiny.project, lambda _: None)


def test_an_archive_without_a_page_says_what_it_has(tiny: Any) -> None:
    records = crawl(fetched({"/gone": Answer(b"gone", status=410)}))
    write(tiny.project.raw / "web" / "a.warc.gz", archive(records))
    with pytest.raises(
        UserError, match=r"hold no document among 4 records \(1 type warcinfo, .*1 status 410.*\), expect"
    ):
        curate([corpus_of(warc="a.warc.gz")], tiny.config, tiny.project, lambda _: None)
