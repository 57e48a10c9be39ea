"""Exported weights: other programs compute with them what the checkpoint does, and lead back to it."""

import contextlib
import hashlib
import io
import json
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from typer.testing import CliRunner

from treering.cli import app
from treering.data.corpus.own_tokenizer import read_own_tokenizer
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.errors import NotFoundError, UserError
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.export import Export
from treering_trainer.checkpointing.inference import load_model
from treering_trainer.checkpointing.weights import open_weights, read_weights
from treering_trainer.export.__main__ import main
from treering_trainer.export.huggingface import write_huggingface
from treering_trainer.export.shards import OutputTensor, parse_size, write_shards

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


@pytest.fixture(scope="module")
def shared(zygote, project, tmp_path_factory):
    """Trained by two tensor ranks, with a separate output layer and dropout."""
    runs = tmp_path_factory.mktemp("shared")
    sets = ("parallel.data=1", "parallel.tensor=2", "model.tied_embeddings=false", "model.dropout=0.1")
    zygote.train(project, runs, *(f"--set={each}" for each in sets), "--no-publish")
    (path,) = runs.glob("*/resolved.json")
    return RunDirectory(path.parent)


@pytest.fixture
def export(project):
    """Exports as `treering export` does, but in this process; gives what was printed."""

    def run(run, output, *options, code=0):
        printed = io.StringIO()
        with (
            contextlib.chdir(project.root),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            assert main([str(run.path), str(output), *options]) == code, printed.getvalue()
        return printed.getvalue()

    return run


def tensors_of(folder):
    return {name: value for path in folder.glob("*.safetensors") for name, value in load_file(path).items()}


@pytest.mark.parametrize("which", ["reference", "shared"])
def test_transformers_computes_the_same_logits(which, export, project, tmp_path, request):
    from transformers import AutoTokenizer, GPT2LMHeadModel

    run = request.getfixturevalue(which)
    model = run.resolved.recipe.model
    export(run, tmp_path / "gpt2", "--format=huggingface")
    theirs, report = GPT2LMHeadModel.from_pretrained(tmp_path / "gpt2", output_loading_info=True)
    assert not any(report.values())
    assert theirs.dtype == torch.float32
    assert (theirs.lm_head.weight is theirs.transformer.wte.weight) == model.tied_embeddings
    assert theirs.config.attn_pdrop == theirs.config.resid_pdrop == theirs.config.embd_pdrop == model.dropout
    tokens = torch.randint(400, (3, 32), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = load_model(run.checkpoints()[-1])(tokens)
        torch.testing.assert_close(theirs.eval()(tokens).logits, expected, atol=1e-5, rtol=0)

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "gpt2")
    text = "  balcen 017\n\ncömün <|endoftext|> 🌲"
    assert tokenizer(text)["input_ids"] == load_tokenizer(project.tokenizer).encode(text).ids
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.eos_token_id == tokenizer.bos_token_id == theirs.config.eos_token_id == 0
    assert tokenizer.model_max_length == theirs.config.n_positions == 32
    # Rows that no token has are never drawn.
    assert theirs.config.vocab_size == 512
    assert theirs.generation_config.suppress_tokens == list(range(400, 512))
    drawn = theirs.generate(tokens[:, :4], do_sample=True, temperature=100.0, max_new_tokens=20, pad_token_id=0)
    assert int(drawn.max()) < 400


def test_a_sentencepiece_model_goes_along_with_its_conversion(reference, tmp_path):
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
    from transformers import AutoTokenizer

    model = io.BytesIO()
    texts = [f"balcen {number:03d} and comun dal" for number in range(300)]
    SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=model, vocab_size=400, model_type="bpe",
                               byte_fallback=True, bos_id=-1, hard_vocab_limit=False, minloglevel=2)  # fmt: skip
    (tmp_path / "own.model").write_bytes(model.getvalue())
    (tmp_path / "tokenizer.json").write_text(read_own_tokenizer(tmp_path / "own.model", "</s>"))
    (tmp_path / "out").mkdir()
    write_huggingface(tmp_path / "out", reference.checkpoints()[-1], "fp32", tmp_path / "tokenizer.json")
    ours = SentencePieceProcessor(model_file=str(tmp_path / "out" / "tokenizer.model"))
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in ("balcen 017", " comun  </s> dal", "é🌲\nbal"):
        assert theirs(text)["input_ids"] == ours.encode(text)
        assert theirs.decode(ours.encode(text)) == ours.decode(ours.encode(text))
    assert theirs.eos_token_id == ours.eos_id()
    assert "converted from the SentencePiece model" in (tmp_path / "out" / "README.md").read_text()


def test_safetensors_hold_the_weights_by_the_names_of_megatron_core(export, shared, tmp_path):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    from treering.config.operation import KernelConfig
    from treering_trainer.core.model import transformer_config
    from treering_trainer.core.topology import join_alone

    export(shared, tmp_path / "out", "--format=safetensors")
    found = tensors_of(tmp_path / "out")
    join_alone()
    config = transformer_config(shared.resolved.recipe.model, KernelConfig(), "fp32", 1)
    spec = get_gpt_layer_local_spec(normalization="LayerNorm")
    theirs = GPTModel(config, spec, vocab_size=512, max_sequence_length=32)
    shapes = {name: value.shape for name, value in theirs.state_dict().items() if isinstance(value, torch.Tensor)}
    assert {name: value.shape for name, value in found.items()} == shapes
    ours = read_weights(shared.checkpoints()[-1].path)
    assert torch.equal(
        found["decoder.layers.1.self_attention.linear_qkv.weight"], ours["3.layer.self_attention.linear_qkv.weight"]
    )
    assert torch.equal(found["embedding.position_embeddings.weight"], ours["1.position"][:, 0])
    assert torch.equal(found["output_layer.weight"], ours["5.word.weight"])


def test_the_record_leads_back_to_the_checkpoint(export, reference, tmp_path):
    printed = json.loads(export(reference, tmp_path / "out", "--json"))
    record, _ = Export.read(tmp_path / "out" / "export.json")
    assert record.model_dump(mode="json") == printed
    checkpoint = reference.checkpoints()[-1]
    assert (record.checkpoint, record.step, record.ring) == (checkpoint.digest, 15, checkpoint.manifest.ring)
    assert record.run == reference.resolved.recipe.digest
    assert (record.format, record.dtype, record.blend) == ("huggingface", "fp32", reference.resolved.blend.digest)
    assert {file.path for file in record.files} == {
        "README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip
    for file in record.files:
        content = (tmp_path / "out" / file.path).read_bytes()
        assert (file.size, file.digest) == (len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        metadata = file.metadata()
    assert metadata["treering.checkpoint"] == checkpoint.digest
    assert (metadata["treering.step"], metadata["format"]) == ("15", "pt")
    card = (tmp_path / "out" / "README.md").read_text()
    assert checkpoint.digest in card
    assert f"`runs/{reference.id}/checkpoints/step-00000015`" in card


def test_an_export_is_audited_by_its_checkpoint(export, project, reference, tmp_path, monkeypatch):

    def audit(*words):
        return CliRunner().invoke(app, ["audit", *words])

    (tmp_path / "data").symlink_to(project.root / "data")
    run = tmp_path / "runs" / reference.path.name
    shutil.copytree(reference.path, run)
    conversion = run / "universal" / "step-00000015"
    conversion.mkdir(parents=True)
    (conversion / "manifest.json").write_text("{}")  # another kind of manifest than a checkpoint's
    export(reference, tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    result = audit("out", "--verify", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["verdict"] == "content-bound: 15 of 15 steps"
    assert report["digests"]["checkpoint"] == reference.checkpoints()[-1].digest

    (tmp_path / "out" / "config.json").write_text("{}")
    result = audit("out", "--json")
    assert result.exit_code == 3
    report = json.loads(result.stdout)
    assert (report["level"], report["digests"]["checkpoint"]) == ("recorded", reference.checkpoints()[-1].digest)
    assert "out/config.json: sha256:" in report["findings"][0]["text"]

    shutil.rmtree(run / "checkpoints")
    report = json.loads(audit("out", "--json").stdout)
    assert (report["level"], report["step"], report["steps_recorded"]) == ("re-derived", 15, 15)
    assert "which stands neither in" in report["findings"][0]["text"]

    run.rename(tmp_path / "elsewhere")
    with pytest.raises(NotFoundError, match=r"out: was exported from checkpoint sha256:.*, which stands neither in"):
        CliRunner().invoke(app, ["audit", "out"], catch_exceptions=False)


def test_shards_load_as_one_model_and_the_same_again_has_the_same_bytes(export, reference, tmp_path):
    from transformers import GPT2LMHeadModel

    export(reference, tmp_path / "one")
    export(reference, tmp_path / "many", "--max-shard-size=40KB")
    names = sorted(path.name for path in (tmp_path / "many").glob("*.safetensors"))
    assert len(names) == 4
    assert names[0] == "model-00001-of-00004.safetensors"
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    assert sorted(set(index["weight_map"].values())) == names
    one, many = (GPT2LMHeadModel.from_pretrained(tmp_path / name).state_dict() for name in ("one", "many"))
    assert all(torch.equal(one[name], many[name]) for name in one)
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in tensors_of(tmp_path / "one").values())

    before = {path.name: path.read_bytes() for path in (tmp_path / "many").iterdir()}
    export(reference, tmp_path / "many", "--max-shard-size=40KB", "--force")
    assert {path.name: path.read_bytes() for path in (tmp_path / "many").iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many", "one"]


def test_weights_get_the_type_that_is_asked_for(export, reference, tmp_path):
    from transformers import GPT2LMHeadModel

    export(reference, tmp_path / "out", "--dtype=bf16")
    assert GPT2LMHeadModel.from_pretrained(tmp_path / "out").dtype == torch.bfloat16
    (name,) = (name for name in tensors_of(tmp_path / "out") if name.endswith("h.1.ln_2.weight"))
    ours = read_weights(reference.checkpoints()[-1].path)["3.layer.pre_mlp_layernorm.weight"]
    assert torch.equal(tensors_of(tmp_path / "out")[name], ours.bfloat16())
    assert Export.read(tmp_path / "out" / "export.json")[0].dtype == "bf16"


def test_a_weight_that_a_type_cannot_hold_is_named(tmp_path):
    large = OutputTensor("h.0.ln_1.weight", (2,), torch.float16, lambda: torch.tensor([1.0, 1e5]))
    with pytest.raises(UserError, match=r"h\.0\.ln_1\.weight: a weight of 100000 does not fit f16; .* --dtype bf16"):
        write_shards(tmp_path, [large], {}, 1, lambda *_: None)


def test_a_damaged_checkpoint_is_never_exported(export, reference, tmp_path):
    copy = RunDirectory(tmp_path / reference.path.name)
    shutil.copytree(reference.path, copy.path)
    path = next((copy.checkpoints()[-1].path / "state").glob("layer_03-*.pt"))
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert f"{path.name}: digest" in export(copy, tmp_path / "out", code=3)
    path.write_bytes(content)
    rings = copy.attempts()[0].rings_file
    rings.write_bytes(rings.read_bytes().replace(b'"applied":true', b'"applied":false', 1))
    assert "rings.jsonl" in export(copy, tmp_path / "out", code=3)
    assert not (tmp_path / "out").exists()


def test_another_tokenizer_is_refused(export, reference, tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    printed = export(reference, tmp_path / "out", f"--tokenizer={tmp_path / 'tokenizer.json'}", code=3)
    assert f"but run {reference.id} was trained with" in printed
    printed = export(reference, tmp_path / "out", f"--tokenizer={tmp_path / 'none.json'}", code=3)
    assert "none.json: tokenizer missing" in printed
    export(reference, tmp_path / "out", f"--tokenizer={tmp_path / 'none.json'}", "--format=safetensors")


def test_what_stands_in_the_output_stays(export, reference, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "text").write_text("mine")
    assert "not empty and not an export" in export(reference, tmp_path / "notes", "--force", code=2)
    assert "is a file" in export(reference, tmp_path / "notes" / "text", code=2)
    assert "give a folder outside" in export(reference, reference.path / "exported", code=2)
    assert "give a folder outside" in export(reference, reference.path.parent, "--force", code=2)
    (tmp_path / "empty").mkdir()
    export(reference, tmp_path / "empty")
    assert "has an export already; --force replaces it" in export(reference, tmp_path / "empty", code=2)
    export(reference, tmp_path / "empty", "--format=safetensors", "--force")
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == ["export.json", "model.safetensors"]
    assert (tmp_path / "notes" / "text").read_text() == "mine"


def test_an_unfinished_export_leaves_nothing(export, reference, tmp_path, monkeypatch):
    from treering_trainer.export import folder

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "digest_file", full)
    assert "No space left on device" in export(reference, tmp_path / "out", code=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "size"), [("5GB", 5_000_000_000), ("500 mb", 500_000_000), ("2GiB", 2 << 30), ("17", 17)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "1.5GB", "5 parsecs"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UserError, match="is not a size; expected a number with"):
        parse_size(text)


def test_weights_are_mapped_not_read(reference):
    checkpoint = CheckpointDirectory(reference.checkpoints()[-1].path)
    weights = {weight.name: weight for weight in open_weights(checkpoint.path)}
    word = weights["0.word.weight"]
    assert word.full("meta").shape == (512, 32)
    full = word.full()
    assert torch.equal(full, word.parts[0])
    assert full.data_ptr() != word.parts[0].data_ptr()
