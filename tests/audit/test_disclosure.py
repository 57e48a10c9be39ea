"""ML-BOM, Croissant and the summary of training content: valid by their own tools, and true to the records."""

import json
import re

import mlcroissant
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from typer.testing import CliRunner

from treering.audit.attestation.keys import PublicKey, generate
from treering.audit.attestation.sign import attest
from treering.audit.disclosure.bom import bill_of_materials, validate
from treering.audit.disclosure.croissant import croissant
from treering.audit.disclosure.facts import gather, licences
from treering.audit.disclosure.training_summary import text_size, training_summary
from treering.cli import app
from treering.data.corpus.manifest import write_manifest
from treering.data.curate.decisions import STEPS
from treering.errors import EvidenceError, NotFoundError, UserError
from treering.runlog.records import Evaluation

SECTIONS = """\
# Public Summary of Training Content for General-Purpose AI models
## 1. General information
### 1.1. Provider identification
### 1.2. Model identification
### 1.3. Modalities, overall training data size and other characteristics
## 2. List of data sources
### 2.1. Publicly available datasets
### 2.2. Private non-publicly available datasets obtained from third parties
#### 2.2.1. Datasets commercially licensed by rightsholders or their representatives
#### 2.2.2. Private datasets obtained from other third parties
### 2.3. Data crawled and scraped from online sources
### 2.4. User data
### 2.5. Synthetic data
### 2.6. Other sources of data
## 3. Data processing aspects
### 3.1. Respect of reservation of rights from text and data mining exception or limitation
### 3.2. Removal of illegal content
### 3.3. Other information (optional)
""".splitlines()


@pytest.fixture
def facts(built):
    return gather(built.last, built.project)


def properties(component):
    return {each["name"].removeprefix("treering:"): each["value"] for each in component["properties"]}


def test_bom_is_valid_and_tells_what_was_read(built, facts):
    document = bill_of_materials(facts, at=0.0)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document)) is None
    assert document["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
    model = document["metadata"]["component"]
    assert (model["type"], model["name"]) == ("machine-learning-model", "tiny")
    assert properties(model)["digest:ring"] == built.last.manifest.ring
    assert [each["name"] for each in model["components"]] == ["weights.bin"]
    corpora = {each["name"]: each for each in document["components"] if each["bom-ref"].startswith("corpus/")}
    assert corpora.keys() == {"red", "green", "blue"}
    assert [each["ref"] for each in model["modelCard"]["modelParameters"]["datasets"]] == [
        corpora[name]["bom-ref"] for name in ("red", "green", "blue")
    ]
    assert corpora["green"]["licenses"] == [{"license": {"id": "MIT"}}]
    for usage in facts.report.corpora:
        said = properties(corpora[usage.corpus])
        assert (said["digest"], said["weight"]) == (usage.digest, usage.weight)
        assert (int(said["samples"]), int(said["tokens"])) == (usage.samples, usage.tokens)
    files = {each["name"]: each["hashes"] for each in corpora["red"]["components"]}
    expected = built.corpora["red"].manifest["files"]["corpus.bin"]
    assert files["corpus.bin"] == [
        {"alg": "SHA-256", "content": expected["sha256"].removeprefix("sha256:")},
        {"alg": "MD5", "content": expected["dvc_md5"]},
    ]
    assert set(document["dependencies"][0]["dependsOn"]) == {each["bom-ref"] for each in document["components"]}
    assert bill_of_materials(facts, at=0.0) == document


def test_bom_with_scores_sources_and_a_signature(built, tmp_path):
    Evaluation(
        run=built.run.resolved.recipe.digest,
        step=15,
        consumed_tokens=built.last.manifest.consumed_tokens,
        checkpoint=built.last.digest,
        harness="lm-eval 0.4",
        tasks={},
        scores={"lambada": {"0": {"acc": 0.5, "acc_stderr": 0.1, "items": 10.0}}},
        perplexity={},
        validation_loss=1.0,
        unigram_entropy=2.0,
    ).write(_made(built.run.path / "evaluations") / "step-00000015.json")
    key, public = generate(tmp_path / "key.pem")
    attest(built.last, built.project, key)
    facts = gather(built.last, built.project, trusted=[PublicKey.read(public)])
    model = bill_of_materials(facts)["metadata"]["component"]
    [metric] = model["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    assert (metric["type"], metric["value"], metric["slice"]) == ("acc", "0.5", "lambada, 0 shots")
    assert float(metric["confidenceInterval"]["lowerBound"]) == pytest.approx(0.5 - 0.196)
    [reference] = model["externalReferences"]
    assert (reference["type"], reference["url"]) == ("attestation", "step-00000015.attestation.json")
    assert properties(model)["assurance"] == "attested"


def _made(path):
    path.mkdir(parents=True, exist_ok=True)
    return path


def rewrite(built, name, **changes):
    """Another corpus under the same name, and a run on it."""
    path = built.corpora[name].directory / "manifest.json"
    write_manifest(path, {**json.loads(path.read_text()), **changes})
    run = built.start_run("seed=99")
    rings = built.lay_attempt(run, 1, range(1, 7))
    built.cut_checkpoint(run, 1, rings[-1])
    return gather(run.checkpoints()[0], built.project)


def test_packages_are_ancestors_and_public_sources(built):
    facts = rewrite(built, "red", source=["pkg:pypi/sympy@1.14.0", "pkg:pypi/django@5.2.19"])
    red = next(each for each in bill_of_materials(facts)["components"] if each["name"] == "red")
    assert [(each["name"], each["version"]) for each in red["pedigree"]["ancestors"]] == [
        ("sympy", "1.14.0"),
        ("django", "5.2.19"),
    ]
    text = training_summary(facts)
    public = text[text.index("### 2.1.") : text.index("### 2.2.")]
    assert "☒ Yes ☐ No" in public
    assert "datasets concerned: ☒ Text ☐ Image ☐ Video ☐ Audio ☐ Other" in public
    tokens = built.corpora["red"].num_tokens
    assert f"| red | {tokens:,} | pkg:pypi/sympy@1.14.0, pkg:pypi/django@5.2.19 | CC0-1.0 |" in public
    other = text[text.index("### 2.6.") : text.index("## 3.")]
    assert "| green | jsonl |" in other
    assert "| red |" not in other


def test_a_document_that_is_no_bom():
    with pytest.raises(EvidenceError, match=r"not valid by CycloneDX 1\.6"):
        validate({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"type": "nonsense"}]})


def test_licences_by_document(built):
    [share] = licences(built.corpora["blue"])
    assert (share.licence, share.documents, share.tokens) == ("Apache-2.0", 200, built.corpora["blue"].num_tokens)


def test_croissant_is_valid_and_its_records_are_the_document_table(built, tmp_path):
    corpus = built.corpora["green"]
    path = tmp_path / "green.json"
    path.write_text(json.dumps(croissant(corpus, tmp_path)))
    dataset = mlcroissant.Dataset(str(path))  # raises where the document is not valid
    assert not dataset.metadata.issues.errors
    assert {"citeAs", "datePublished"} == {  # recommended, and not ours to invent
        re.search(r"[/#](\w+)\" is recommended", warning)[1] for warning in dataset.metadata.issues.warnings
    }
    records = list(dataset.records("documents"))
    assert len(records) == 30
    row = corpus.document(7)
    assert {key.removeprefix("documents/"): value for key, value in records[7].items()} == {
        key: value.encode() if isinstance(value, str) else value for key, value in row.items()
    }
    files = {each.name: each.sha256 for each in dataset.metadata.distribution}
    for name, entry in corpus.manifest["files"].items():
        assert f"sha256:{files[name]}" == entry["sha256"]
    assert dataset.metadata.license == ["https://spdx.org/licenses/MIT.html"]


def test_the_summary_has_the_templates_headings(facts):
    text = training_summary(facts, at=0.0)
    assert [line for line in text.splitlines() if line.startswith("#")] == SECTIONS
    assert "Last update: 01/01/1970" in text


#: The fields that the template asks for under each question, as appendix A of CycloneDX's guide to ML-BOMs lists them.
FIELDS = {
    "1.3": ["Latest date of data acquisition/collection for model training"],
    "2.1": ["List of large publicly available datasets", "General description of other publicly available datasets"],
    "2.2.1": ["Modality(ies) of the content covered"],
    "2.2.2": ["Modality(ies) of the content covered", "If publicly known", "General description of non-publicly known"],
    "2.3": [
        "Crawler name(s)/identifier(s)",
        "Purposes of the crawler(s)",
        "General description of crawler behaviour",
        "Period of data collection",
        "Comprehensive description of the type of content and online sources crawled",
        "Type of modality covered",
        "Summary of the most relevant domain names crawled",
        "Additional comments (optional)",
    ],
    "2.4": ["General description of the provider's services or products", "Additional comments (optional)"],
    "2.5": [
        "Modality of the synthetic data",
        "General-purpose AI model(s) used to generate the synthetic data",
        "Information about other AI models",
        "Additional comments (optional)",
    ],
    "2.6": ["Narrative description of these data sources and the data", "Additional comments (optional)"],
    "3.1": ["Signatory to the Code of Practice", "Describe the measures", "Additional comments (optional)"],
    "3.2": ["General description of measures taken"],
    "3.3": ["Other relevant information about data processing (optional)"],
}


@pytest.mark.parametrize("section", FIELDS)
def test_every_field_of_the_template_stands_in_its_section_in_order(facts, section):
    text = training_summary(facts)
    begin = text.index(f"# {section}. ")
    end = text.find("\n#", begin)
    rest = text[begin : end if end > 0 else None]
    for field in FIELDS[section]:
        assert field in rest
        rest = rest[rest.index(field) + len(field) :]


def test_the_summary_invents_nothing(built, facts):
    text = training_summary(facts)
    held = sum(corpus.num_tokens for corpus in built.corpora.values())
    assert (
        "| ☒ Text | ☒ Less than 1 billion tokens ☐ 1 billion to 10 trillions tokens ☐ More than 10 trillions tokens "
        f"({held:,} tokens in the corpora, 2,688 tokens read in training)"
    ) in text
    for name in ("red", "green", "blue"):
        assert f"{name}: **[provider: languages; no filter is on record]**" in text
    public = text[text.index("### 2.1.") : text.index("### 2.2.")]
    assert "☐ Yes ☐ No **[provider: answer" in public  # `jsonl` is no package: nobody knows where it came from
    for section in ("2.2.1", "2.2.2", "2.3", "2.4", "2.5"):
        begin = text.index(f"# {section}.")
        assert "☐ Yes ☐ No **[provider: answer" in text[begin : text.index("\n#", begin)]
    assert "**[provider: curation; none is on record]**" in text
    assert built.last.manifest.ring in text
    assert "nothing was replayed" in text


def test_what_curation_dropped_is_told_only_of_this_very_corpus(built):
    steps = [{"step": step, "input": "x", "parameters": {}, "kept": 1, "dropped": 0} for step in STEPS]
    steps[1] |= {"dropped": 5, "parameters": {"languages": ["en", "de"]}}
    summary = {"corpora": {"red": {"dropped": {step: {} for step in STEPS} | {"filter": {"min_words": 5}}}}}
    _made(built.project.curated).joinpath("summary.json").write_text(json.dumps(summary))
    facts = rewrite(built, "red", curation=steps)
    assert next(each for each in facts.corpora if each.usage.corpus == "red").dropped["filter"] == {"min_words": 5}
    text = training_summary(facts)
    assert "| red | filter | min_words | 5 |" in text
    assert "red: documents identified as en, de" in text
    summary["corpora"]["red"]["dropped"]["filter"] = {"min_words": 6}
    built.project.curated.joinpath("summary.json").write_text(json.dumps(summary))
    facts = gather(next(run for run in _runs(built) if run.resolved.recipe.seed == 99).checkpoints()[0], built.project)
    assert next(each for each in facts.corpora if each.usage.corpus == "red").dropped is None
    assert "| red | filter | all its rules | 5 |" in training_summary(facts)


def _runs(built):
    from treering.runlog.find import find_runs

    return find_runs(built.project.runs)


def test_a_corpus_that_is_not_at_hand_leaves_blanks(built):
    built.corpora["red"].directory.rename(built.project.root / "away")
    facts = gather(built.last, built.project)
    text = training_summary(facts)
    assert "**[provider: size of the corpora that were not at hand: red]**" in text
    assert "| red | **[provider: sources; it was not at hand]** |" in text
    validate(bill_of_materials(facts))


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (10**9 - 1, "Less than 1 billion tokens"),
        (10**9, "1 billion to 10 trillions tokens"),
        (10**13 - 1, "1 billion to 10 trillions tokens"),
        (10**13, "More than 10 trillions tokens"),
    ],
)
def test_size_ranges(tokens, words):
    assert text_size(tokens) == words


def test_nothing_is_told_of_what_does_not_hold(built):
    path = built.run.path / "attempts" / "0001" / "rings.jsonl"
    path.write_text(path.read_text().replace('"step":3', '"step":4'))
    with pytest.raises(EvidenceError, match="the audit found what does not hold"):
        gather(built.last, built.project)


@pytest.fixture
def invoke(built):  # noqa: ARG001 - its working directory
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_the_commands(built, invoke):
    assert "3 corpora" in invoke("bom", built.run.id).stdout
    document = json.loads((built.project.root / "bom.cdx.json").read_text())
    assert document == json.loads(invoke("bom", built.run.id, "--json").stdout) | {"metadata": document["metadata"]}
    result = json.loads(invoke("training-summary", built.run.id, "--json").stdout)
    assert (built.project.root / "training-content.md").read_text() == result["text"]
    assert result["blanks"] == result["text"].count("**[provider: ")
    assert f"{result['blanks']} blanks are left to the provider" in invoke("training-summary", built.run.id).stdout
    assert invoke("croissant").stdout.split() == [f"croissant/{name}.train.json" for name in ("blue", "green", "red")]
    assert list(json.loads(invoke("croissant", "red", "--json").stdout)) == ["croissant/red.train.json"]
    assert invoke("croissant", "data/corpora/train/red").stdout.strip() == "croissant/red.train.json"
    with pytest.raises(NotFoundError, match="found no corpus 'violet'"):
        invoke("croissant", "violet")
    with pytest.raises(UserError, match="its folder does not exist"):
        invoke("bom", built.run.id, "--output", "none/bom.json")
