"""Folders that transformers' Trainer and peft wrote."""

from __future__ import annotations

import json
import shutil
import warnings

import pytest
import torch
from torch import nn

import undertow as ut
from undertow.errors import BadData, NotThere, RunProblem

from . import worlds

texts = worlds.Texts(128, 1)
few = {"input_ids": texts.ids, "attention_mask": texts.mask}


def answers(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(**few).logits


def loaded(folder) -> nn.Module:
    from transformers import BertForSequenceClassification

    return BertForSequenceClassification.from_pretrained(folder)


def test_a_trainers_folder_opens_without_a_model(bert):
    """Steps from the folders' names, the model from config.json, as transformers itself loads it."""
    run = ut.open_run(bert)
    assert (run.epochs, run.unit) == ((10, 20, 30), "step")
    for step in run.epochs:
        torch.testing.assert_close(answers(run.model(step)), answers(loaded(bert / f"checkpoint-{step}")))
    assert run.class_names == ("fewer", "more")
    assert run.tokenizer.decode([5, 6]) == "sea sky"


def test_metrics_come_from_the_trainers_state(bert):
    run = ut.open_run(bert)
    state = json.loads((bert / "checkpoint-30" / "trainer_state.json").read_text())
    told = {row["step"]: row["eval_accuracy"] for row in state["log_history"] if "eval_accuracy" in row}
    assert run.metrics.set_index("step")["eval_accuracy"].dropna().to_dict() == pytest.approx(told)
    assert run.logs.steps_per_epoch == 10


def test_shards_bins_and_one_folder(bert, tmp_path):
    """Sharded weights, pytorch_model.bin and a folder that holds one model give the same answers."""
    model = loaded(bert / "checkpoint-30")
    sharded, plain = tmp_path / "a" / "checkpoint-30", tmp_path / "b" / "checkpoint-30"
    model.save_pretrained(sharded, max_shard_size="8KB")
    assert (sharded / "model.safetensors.index.json").is_file()
    plain.mkdir(parents=True)
    torch.save(model.state_dict(), plain / "pytorch_model.bin")
    shutil.copy(sharded / "config.json", plain)
    for folder in (sharded.parent, plain.parent, sharded, plain):
        torch.testing.assert_close(answers(ut.open_run(folder).model()), answers(model))
    run = ut.open_run(sharded)
    before = run.checkpoints[0].mark()
    part = next(sharded.glob("model-00002*"))
    part.write_bytes(part.read_bytes()[:-4] + b"\0\0\0\1")
    assert ut.open_run(sharded).checkpoints[0].mark() != before
    part.unlink()
    with pytest.raises(NotThere, match="is not there"):
        run.model()


def test_tied_weights_are_put_back(tmp_path):
    """A decoder's output layer is its embedding: the file holds it once."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=1, n_positions=16)).eval()
    model.save_pretrained(tmp_path / "checkpoint-7")
    found = ut.open_run(tmp_path).model()
    with torch.no_grad():
        torch.testing.assert_close(found(texts.ids).logits, model(texts.ids).logits)


def test_adapters_are_merged_onto_their_base(bert, tmp_path):
    """As peft itself merges them; the head that was trained with the adapter comes along."""
    from peft import LoraConfig, PeftModel, get_peft_model

    base = bert / "checkpoint-30"
    config = LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    folder = worlds.bert_run(tmp_path / "lora", get_peft_model(loaded(base), config), epochs=2, words=False)
    run = ut.open_run(folder)
    assert run.epochs == (10, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = PeftModel.from_pretrained(loaded(base), str(folder / "checkpoint-20")).merge_and_unload()
    torch.testing.assert_close(answers(run.model(20)), answers(theirs))
    assert not torch.allclose(answers(run.model(20)), answers(loaded(base)), atol=1e-4)
    own = ut.open_run(folder, model=lambda: loaded(base))
    torch.testing.assert_close(answers(own.model(20)), answers(theirs))
    told = json.loads((folder / "checkpoint-20" / "adapter_config.json").read_text())
    (folder / "checkpoint-20" / "adapter_config.json").write_text(
        json.dumps({**told, "base_model_name_or_path": "nobody/nothing"})
    )
    with pytest.raises(NotThere, match=r"'nobody/nothing' cannot be loaded\. Give the model yourself"):
        ut.open_run(folder).model(20)


def test_a_head_of_two_layers_has_as_many_outputs_as_its_last(tmp_path, capfd):
    """RoBERTa's classifier is dense, then out_proj; and nothing of transformers is printed for each checkpoint."""
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import RobertaConfig, RobertaForSequenceClassification

    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=20, pad_token_id=1, num_labels=2,
    )  # fmt: skip
    RobertaForSequenceClassification(config).save_pretrained(tmp_path / "base")
    base = RobertaForSequenceClassification.from_pretrained(tmp_path / "base")
    adapter = LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"])
    folder = worlds.bert_run(tmp_path / "lora", get_peft_model(base, adapter), epochs=1, words=False)
    fresh = RobertaForSequenceClassification.from_pretrained(tmp_path / "base")
    theirs = PeftModel.from_pretrained(fresh, str(folder / "checkpoint-10")).merge_and_unload()
    capfd.readouterr()
    torch.testing.assert_close(answers(ut.open_run(folder).model()), answers(theirs))
    assert capfd.readouterr() == ("", "")


def test_a_class_without_samples_is_no_mistake_where_the_model_names_it(bert):
    """Three classes by config.json; nobody gave the middle one."""
    run = ut.open_run(bert)
    run.__dict__["class_names"] = ("fewer", "even", "more")
    x, y = {"input_ids": worlds.Texts(60, 3).ids}, 2 * worlds.Texts(60, 3).labels
    held = ut.Session(run, train=(x, y), test=(x, y)).samples
    assert held.classes == ("fewer", "even", "more")
    assert held.train is not None
    assert set(held.train.given.tolist()) == {0, 2}


def test_names_of_older_versions_are_known_to_transformers(bert, tmp_path):
    """The library wrote LayerNorm.gamma once; it reads that still."""
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "checkpoint-30"
    shutil.copytree(bert / "checkpoint-30", folder)
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in load_file(folder / "model.safetensors").items()
    }
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    torch.testing.assert_close(
        answers(ut.open_run(tmp_path).model()), answers(loaded(bert / "checkpoint-30"))
    )


def test_an_unknown_architecture_names_the_way_out(bert, tmp_path):
    shutil.copytree(bert / "checkpoint-30", tmp_path / "checkpoint-30")
    config = tmp_path / "checkpoint-30" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "architectures": ["MyOwnNet"]}))
    with pytest.raises(NotThere, match=r"no MyOwnNet.*open_run\(path, model=function\)"):
        ut.open_run(tmp_path).model()
    with pytest.raises(RunProblem, match=r"wanted the weights of Sequential"):
        ut.open_run(tmp_path, model=worlds.plain_net).model()


def test_one_audit_from_the_folder_alone(bert, tmp_path):
    """No --model: the verdict rests on the model that config.json describes."""
    train, held = worlds.Texts(320, 0), worlds.Texts(128, 1)
    found = ut.audit(
        ut.open_run(bert), train=train, test=held, out=tmp_path, lenses=["latent", "repair"], progress=False
    )
    right = float((answers(loaded(bert / "checkpoint-30")).argmax(1) == held.labels).double().mean())
    assert found.measures["accuracy"] == pytest.approx(right)


def test_texts_beside_the_tokens_are_left_out(bert):
    """As Trainer does: people pass the Dataset that they gave to it, with the column that they tokenised."""
    from datasets import Dataset

    columns = {
        "input_ids": texts.ids.tolist(),
        "attention_mask": texts.mask.tolist(),
        "label": texts.labels.tolist(),
    }
    data = Dataset.from_dict({"text": ["sea sky"] * len(texts), **columns})
    settings = {"lenses": ["latent"], "probes": ["velpic"], "checkpoints": "last", "progress": False}
    found = ut.audit(bert, data, data, **settings)
    right = float((answers(loaded(bert / "checkpoint-30")).argmax(1) == texts.labels).double().mean())
    assert found.measures["accuracy"] == pytest.approx(right)
    with pytest.raises(BadData, match="Turn texts into tokens first"):
        ut.audit(bert, data.select_columns(["text", "label"]), data, **settings)
