"""The summary of training content, in Markdown after the template of the AI Act.

Source: European Commission, Explanatory Notice and Template for the Public Summary of Training Content for
general-purpose AI models required by Article 53(1)(d) of Regulation (EU) 2024/1689, C(2025) 5235 of 24 July 2025,
adopted as C(2025) 8311 on 5 December 2025; its headings and questions in its order. Checked against texts that follow
it, not against the Commission's own file: the summaries of Apertus (Swiss AI Initiative, 1 September 2025; headings,
questions and ranges word for word) and of SmolLM3 (Hugging Face, 2025), and appendix A of CycloneDX's guide to ML-BOMs,
which lists the fields under every question. Neither summary shows the wording of the fields that follow a yes in 2.2 to
2.6 (CycloneDX's is used) and of the question whether the model is trained on after the latest date, because both answer
no. Public summaries: huggingface.co/swiss-ai/Apertus-70B-2509 and
huggingface.co/spaces/hfmlsoc/smollm3-eu-data-transparency. What the records say is filled
in; what only the provider knows is left as a named blank.
"""

import time
from collections.abc import Iterable, Iterator, Sequence

from treering.audit.disclosure.facts import CorpusFacts, ModelFacts
from treering.foreign import markdown

_TEXT_SIZES = (
    (10**9, "Less than 1 billion tokens"),
    (10**13, "1 billion to 10 trillions tokens"),
    (None, "More than 10 trillions tokens"),
)
_MODALITIES = ("Text", "Image", "Video", "Audio", "Other")
_COVERED = "modality(ies) of the content covered by the datasets concerned"
_COMMENTS = "Additional comments (optional)"
_PUBLIC = "pkg:"


def training_summary(facts: ModelFacts, at: float | None = None) -> str:
    """The summary of a checkpoint's training content.

    Args:
        facts: the facts to write.
        at: when the document is made, Unix seconds; default now.
    """
    day = time.strftime("%d/%m/%Y", time.gmtime(time.time() if at is None else at))
    lines = [
        "# Public Summary of Training Content for General-Purpose AI models",
        "",
        f"Version of the Summary: {blank('version of this summary')}",
        "",
        f"Last update: {day}",
        "",
        *_general(facts),
        *_sources(facts),
        *_processing(facts),
    ]
    return "\n".join(lines) + "\n"


def blank(what: str) -> str:
    """What only the provider can say."""
    return f"**[provider: {what}]**"


def text_size(tokens: int) -> str:
    """The template's range for an amount of text."""
    return next(words for limit, words in _TEXT_SIZES if limit is None or tokens < limit)


def _general(facts: ModelFacts) -> Iterator[str]:
    report, recipe = facts.report, facts.resolved.recipe
    held = sum(each.num_tokens for each in facts.corpora)
    absent = [each.usage.corpus for each in facts.corpora if each.manifest is None]
    ranges = _chosen(text_size(held), (words for _, words in _TEXT_SIZES))
    size = f"{ranges} ({held:,} tokens in the corpora, {report.consumed_tokens:,} tokens read in training)"
    if absent:
        size += f"; {blank(f'size of the corpora that were not at hand: {_and(absent)}')}"
    kinds = _and(sorted({str(each.parameter("extract", "kind")) for each in facts.corpora} - {"None"}))
    start = recipe.start_from
    earlier = "none on record: training began without the weights of another model"
    if start is not None:
        runs = dict.fromkeys(part.run for part in report.path if part.run != report.run)
        earlier = f"went on from step {start.step} of run {_and(runs)}, whose training content is included here"
    yield from (
        "## 1. General information",
        "",
        "### 1.1. Provider identification",
        "",
        f"Provider name and contact details: {blank('name and contact details')}",
        "",
        f"Authorised representative name and contact details: {blank('name and contact details, if there is one')}",
        "",
        "### 1.2. Model identification",
        "",
        f"Versioned model name(s): {markdown(facts.name)} ({facts.parameters}); {blank('name on the market')}",
        "",
        f"Model dependencies: {earlier}",
        "",
        f"Date of placement of the model on the Union market: {blank('date')}",
        "",
        "### 1.3. Modalities, overall training data size and other characteristics",
        "",
        "| Modality | Training data size | Types of content |",
        "| --- | --- | --- |",
        f"| ☒ Text | {size} | {kinds or blank('types of content')} |",
        *(f"| ☐ {other} | | |" for other in _MODALITIES[1:]),
        "",
        f"Latest date of data acquisition/collection for model training: {blank('MM/YYYY; the records hold versions')}",
        "",
        f"Is the model continuously trained on new data after this date? {_unknown('the records hold one checkpoint')}",
        "",
        f"Description of the linguistic characteristics of the overall training data: {_languages(facts.corpora)}",
        "",
        "Other relevant characteristics of the overall training data:",
        "",
        "| Corpus | Weight | Documents | Read of them | Tokens read | Times read | Licences |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
        *(_corpus_row(each) for each in facts.corpora),
        "",
        f"{_COMMENTS}:",
        "",
    )


def _chosen(one: str, of: Iterable[str]) -> str:
    """The template's boxes, one of them ticked."""
    return " ".join(f"{'☒' if each == one else '☐'} {each}" for each in of)


def _if_yes(*fields: str, comments: bool = True) -> Iterator[str]:
    """What the template asks further of those who answer yes, left open."""
    yield from ("If yes:", "")
    yield from (f"- {field}:" for field in (*fields, *[_COMMENTS] * comments))
    yield ""


def _public_row(corpus: CorpusFacts) -> str:
    terms = "; ".join(markdown(share.licence) for share in corpus.licences)
    name, sources = markdown(corpus.usage.corpus), _and(corpus.sources)
    return f"| {name} | {corpus.num_tokens:,} | {sources} | {terms} |"


def _corpus_row(corpus: CorpusFacts) -> str:
    usage = corpus.usage
    terms = "; ".join(f"{markdown(each.licence)} ({each.documents:,} documents)" for each in corpus.licences)
    touched = "unknown" if usage.documents_touched is None else f"{usage.documents_touched:,}"
    held = "unknown" if usage.num_documents is None else f"{usage.num_documents:,}"
    return (
        f"| {markdown(usage.corpus)} | {usage.weight} | {held} | {touched} | {usage.tokens:,} | "
        f"{usage.realised_epochs:.4f} | {terms or blank('licence; the corpus was not at hand')} |"
    )


def _languages(corpora: Sequence[CorpusFacts]) -> str:
    """What curation asked of a document's language."""
    said = []
    for each in corpora:
        wanted = each.parameter("filter", "languages")
        if wanted is None:
            said.append(f"{markdown(each.usage.corpus)}: {blank('languages; no filter is on record')}")
        elif wanted:
            said.append(f"{markdown(each.usage.corpus)}: documents identified as {_and(wanted)}")
        else:
            said.append(f"{markdown(each.usage.corpus)}: no rule on language")
    return "; ".join(said)


def _sources(facts: ModelFacts) -> Iterator[str]:
    public = [each for each in facts.corpora if each.sources and all(s.startswith(_PUBLIC) for s in each.sources)]
    other = [each for each in facts.corpora if each not in public]
    yield from (
        "## 2. List of data sources",
        "",
        "### 2.1. Publicly available datasets",
        "",
        "Have you used publicly available datasets to train the model? "
        + ("☒ Yes ☐ No" if public else _unknown("whether any of the sources listed in 2.6 is one")),
        "",
    )
    if public:
        yield from (
            f"If yes, specify the {_COVERED}: {_chosen('Text', _MODALITIES)}",
            "",
            "List of large publicly available datasets: packages of public registries, by package URL, of any size.",
            "",
            "| Corpus | Tokens | Sources | Licences |",
            "| --- | ---: | --- | --- |",
            *(_public_row(each) for each in public),
            "",
            "General description of other publicly available datasets not listed above: "
            + blank("description, if sources of 2.6 belong here"),
            "",
            f"{_COMMENTS}:",
            "",
        )
    else:
        yield from _if_yes(
            _COVERED.capitalize(),
            "List of large publicly available datasets",
            "General description of other publicly available datasets not listed above",
        )
    yield from (
        "### 2.2. Private non-publicly available datasets obtained from third parties",
        "",
        "#### 2.2.1. Datasets commercially licensed by rightsholders or their representatives",
        "",
        "Have you concluded transactional commercial licensing agreement(s) with rightsholder(s) or with their "
        f"representatives? {_unknown('the records hold licences, not contracts')}",
        "",
        *_if_yes(_COVERED.capitalize(), comments=False),
        "#### 2.2.2. Private datasets obtained from other third parties",
        "",
        "Have you obtained private datasets from third parties that are not licensed as described in Section 2.2.1, "
        "such as data obtained from providers of private databases, or data intermediaries? "
        + _unknown("the records do not say from whom data was obtained"),
        "",
        *_if_yes(
            _COVERED.capitalize(),
            "If publicly known, list of private datasets obtained from other third parties",
            "General description of non-publicly known private datasets obtained from third parties",
        ),
        "### 2.3. Data crawled and scraped from online sources",
        "",
        f"Were crawlers used by the provider or on behalf of? {_unknown('the records name no crawler')}",
        "",
        *_if_yes(
            "Crawler name(s)/identifier(s)",
            "Purposes of the crawler(s)",
            "General description of crawler behaviour",
            "Period of data collection",
            "Comprehensive description of the type of content and online sources crawled",
            "Type of modality covered",
            "Summary of the most relevant domain names crawled",
        ),
        "### 2.4. User data",
        "",
        "Was data from user interactions with the AI model (e.g. user input and prompts) used to train the model? "
        + _unknown("not on record"),
        "",
        "Was data collected from user interactions with the provider's other services or products used to train the "
        f"model? {_unknown('not on record')}",
        "",
        *_if_yes(
            "General description of the provider's services or products that were used to collect the user data",
            "Type of modality covered",
        ),
        "### 2.5. Synthetic data",
        "",
        "Was synthetic AI-generated data created by the provider or on their behalf to train the model? "
        + _unknown("not on record"),
        "",
        *_if_yes(
            "Modality of the synthetic data",
            "General-purpose AI model(s) used to generate the synthetic data, if available on the market",
            "Information about other AI models, including provider's own AI model(s) not available on the market, used "
            "to generate synthetic data to train the model",
        ),
        "### 2.6. Other sources of data",
        "",
        "Have data sources other than those described in Sections 2.1 to 2.5 been used to train the model? "
        + (
            _unknown("the records do not say to which section these belong")
            if other
            else "☐ Yes ☒ No: 2.1 lists every corpus on record"
        ),
        "",
    )
    if other:
        yield from ("| Corpus | Sources on record |", "| --- | --- |")
        yield from (
            f"| {markdown(each.usage.corpus)} | {_and(each.sources) or blank('sources; it was not at hand')} |"
            for each in other
        )
        yield from ("", *_if_yes("Narrative description of these data sources and the data"))


def _processing(facts: ModelFacts) -> Iterator[str]:
    report = facts.report
    yield from (
        "## 3. Data processing aspects",
        "",
        "### 3.1. Respect of reservation of rights from text and data mining exception or limitation",
        "",
        "Are you a Signatory to the Code of Practice for general-purpose AI models that includes commitments to "
        f"respect reservations of rights from the TDM exception or limitation? {_unknown('not on record')}",
        "",
        "Describe the measures implemented before model training to respect reservations of rights from the TDM "
        "exception or limitation before and during data collection, including the opt-out protocols and solutions "
        "honoured by the provider or, as applicable, by third parties from which datasets have been obtained: "
        + blank("measures and opt-out protocols; the records hold the licence of each document, listed in 1.3"),
        "",
        f"{_COMMENTS}:",
        "",
        "### 3.2. Removal of illegal content",
        "",
        f"General description of measures taken: {blank('measures against illegal content')}",
        "",
        "What curation removed, by the records; none of these rules looks for illegal content:",
        "",
        "| Corpus | Step | Rule | Documents removed |",
        "| --- | --- | --- | ---: |",
        *_removed(facts.corpora),
        "",
        "### 3.3. Other information (optional)",
        "",
        "Other relevant information about data processing (optional): "
        f"corpora, licences and amounts were read from the run's records by an audit: {markdown(report.verdict)}, "
        f"level of assurance {report.level}. Not proven by it:",
        "",
        *(f"- {markdown(text)}" for text in report.not_proven),
        "",
        "| Identity | Digest |",
        "| --- | --- |",
        *(f"| {markdown(name)} | {markdown(digest or 'none')} |" for name, digest in report.digests.items()),
        *(f"| corpus {markdown(each.usage.corpus)} | {each.usage.digest or 'declared'} |" for each in facts.corpora),
    )


def _removed(corpora: Sequence[CorpusFacts]) -> Iterator[str]:
    for each in corpora:
        name = markdown(each.usage.corpus)
        if each.dropped is not None:
            for step, rules in each.dropped.items():
                yield from (
                    f"| {name} | {markdown(step)} | {markdown(rule)} | {count:,} |" for rule, count in rules.items()
                )
        elif each.steps:
            yield from (
                f"| {name} | {markdown(step['step'])} | all its rules | {step['dropped']:,} |"
                for step in each.steps
                if step.get("dropped")
            )
        else:
            yield f"| {name} | {blank('curation; none is on record')} | | |"


def _unknown(reason: str) -> str:
    return f"☐ Yes ☐ No {blank(f'answer; {reason}')}"


def _and(names: Iterable[str]) -> str:
    return ", ".join(map(markdown, names))
