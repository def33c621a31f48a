"""Shorter models: exact, stopped early, saved, loaded and exported."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from undertow.errors import BadValue, NotThere, RunProblem, UnknownName
from undertow.features import Tap
from undertow.latent import MASC, LogisticProbe, VeLPIC
from undertow.models import build_model
from undertow.repairing import Graft, export_onnx, export_program, load_repaired, make_graft, save_repaired

from .nets import TimmLike, images, seeded

PROBES = {"velpic": VeLPIC, "masc": MASC, "logistic": LogisticProbe}


def fitted(model: nn.Module, layer: str, probe: str, **rules):
    x, y = images()
    with Tap(model, layer, **rules) as tap:
        return PROBES[probe]().fit(tap(x)[1][layer], y)


def trained_timm() -> nn.Module:
    """With batch statistics of its own, which a graft must keep."""
    model = seeded(TimmLike)
    for seed in range(3):
        model.train()(images(seed=seed)[0])
    return model.eval()


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("conv", ["flatten", "mean", "max"])
def test_graft_answers_as_the_probe(probe, conv):
    """Fails if an in-place ReLU behind the layer got at its output, or if batch norm ran in training mode."""
    model, layer = trained_timm(), "stem.1"
    known = fitted(model, layer, probe, conv=conv)
    made = make_graft(model, layer, known, example=images()[0][:4], conv=conv)
    x = images(seed=1)[0]
    with Tap(model, layer, conv=conv) as tap:
        rows = tap(x)[1][layer]
    assert torch.equal(made.features(x), rows)
    assert torch.equal(made(x).argmax(1), known.predict(rows))
    if probe == "masc":
        torch.testing.assert_close(made(x), known.scores(rows))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("probe", PROBES)
def test_other_precisions(dtype, probe):
    """A body in half precision keeps a head in single precision; double stays double."""
    model = trained_timm().to(dtype)
    x, y = images()
    with Tap(model, "block") as tap:
        rows = tap(x.to(dtype))[1]["block"]
    known = PROBES[probe]().fit(rows, y)
    made = make_graft(model, "block", known, example=x[:2].to(dtype))
    scores = made(x.to(dtype))
    assert scores.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.equal(scores.argmax(1), known.predict(rows))


def test_what_lies_behind_is_not_computed():
    model = trained_timm()
    made = make_graft(model, "block", fitted(model, "block", "velpic"), example=images()[0][:2])
    calls: list[str] = []
    made.body.model.late.register_forward_hook(lambda *_: calls.append("late"))
    made(images()[0])
    assert not calls
    assert not made.body.model.block._forward_hooks


def test_a_chain_is_sliced_and_the_model_left_alone():
    model = build_model("mlp:16-8", (1, 8, 8), 3, seed=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    made = make_graft(model, "layer1", fitted(model, "layer1", "velpic"), example=images()[0][:2])
    assert set(made.state_dict()) == {"body.layer1.linear.weight", "body.layer1.linear.bias", "head.weight"}
    made.body.layer1.linear.weight.data.zero_()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.fc = nn.Linear(64, 64), nn.Linear(64, 3)

    def forward(self, x):
        return self.fc(self.a(self.a(x.flatten(1)).relu()))


def test_layers_that_cannot_be_cut_at():
    model = seeded(Twice).eval()
    with pytest.warns(UserWarning, match="runs 2 times"):
        known = fitted(model, "a", "velpic")
    with (
        pytest.warns(UserWarning, match="runs 2 times"),
        pytest.raises(BadValue, match="runs once in a pass"),
    ):
        make_graft(model, "a", known, example=images()[0][:2])
    with pytest.raises(BadValue, match="one layer of the model"):
        make_graft(model, "input", known, example=images()[0][:2])


def test_masked_tokens_of_a_transformer():
    transformers = pytest.importorskip("transformers")
    model = seeded(transformers.BertForSequenceClassification, bert_config()).eval()
    random = torch.Generator().manual_seed(0)
    inputs = {
        "input_ids": torch.randint(0, 30, (40, 6), generator=random),
        "attention_mask": (torch.arange(6) < torch.randint(2, 7, (40, 1), generator=random)).long(),
    }
    for rule in ("mean", "first", "last", "flatten"):
        with Tap(model, "bert.encoder.layer.0", tokens=rule) as tap:
            rows = tap(inputs)[1]["bert.encoder.layer.0"]
        known = VeLPIC().fit(rows, torch.arange(40) % 3)
        made = make_graft(model, "bert.encoder.layer.0", known, example=inputs, tokens=rule)
        torch.testing.assert_close(made.features(**inputs), rows)
        assert torch.equal(made(**inputs).argmax(1), known.predict(rows))


def bert_config():
    transformers = pytest.importorskip("transformers")
    return transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, num_labels=3,
    )  # fmt: skip


@pytest.mark.parametrize("probe", PROBES)
def test_saved_and_loaded_without_the_run(tmp_path, probe):
    facts = {"spec": "mlp:16-8", "shape": [1, 8, 8], "outputs": 3, "vocabulary": None, "seed": 0}
    model = build_model("mlp:16-8", (1, 8, 8), 3, seed=5).eval()
    made = make_graft(model, "layer1", fitted(model, "layer1", probe), example=images()[0][:2])
    tensors, text = save_repaired(made, tmp_path / "short", model=facts, about={"probe": probe})
    assert (tensors.name, text.name) == ("short.safetensors", "short.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["short.json", "short.safetensors"]
    x = images(seed=2)[0]
    assert torch.equal(load_repaired(tensors)(x), made(x))
    assert json.loads(text.read_text())["probe"] == probe


def test_a_foreign_model_is_asked_for_and_saved_short(tmp_path):
    model = trained_timm()
    made = make_graft(model, "block", fitted(model, "block", "masc"), example=images()[0][:2])
    path, text = save_repaired(made, tmp_path / "short.safetensors")
    assert set(json.loads(text.read_text())["left_out"]) == {
        f"body.model.{name}"
        for name in (
            "aux.weight",
            "aux.bias",
            "head.fc.weight",
            "head.fc.bias",
            "late.0.weight",
            "late.0.bias",
        )
    }
    with pytest.raises(BadValue, match=r"a way to build its model \(TimmLike\)"):
        load_repaired(path)
    again = load_repaired(path, model=TimmLike)
    x = images(seed=2)[0]
    assert isinstance(again, Graft)
    assert torch.equal(again(x), made(x))
    with pytest.raises(RunProblem, match="wanted the weights of"):
        load_repaired(path, model=lambda: nn.ModuleDict({"block": nn.Linear(2, 2)}))
    with pytest.raises(UnknownName, match="There is no layer 'block'"):
        load_repaired(path, model=lambda: TimmLike().stem)


def test_files_that_do_not_belong_together(tmp_path):
    model = build_model("mlp:16-8", (1, 8, 8), 3, seed=5).eval()
    for layer in ("layer1", "layer2"):
        made = make_graft(model, layer, fitted(model, layer, "velpic"), example=images()[0][:2])
        save_repaired(made, tmp_path / layer)
    (tmp_path / "layer1.json").replace(tmp_path / "layer2.json")
    with pytest.raises(RunProblem, match="another file than layer2"):
        load_repaired(tmp_path / "layer2.safetensors")
    with pytest.raises(NotThere, match="pair of files"):
        load_repaired(tmp_path / "layer1.safetensors")
    (tmp_path / "layer2.json").write_text("{}")
    with pytest.raises(RunProblem, match=r"layer2.json: .* wanted a value, but there is none"):
        load_repaired(tmp_path / "layer2.safetensors")


@pytest.mark.parametrize(("probe", "layer"), [("masc", "stem.1"), ("logistic", "block")])
def test_exports_agree(tmp_path, probe, layer):
    """On a number of samples other than the example's; fails if what runs behind the layer got in between."""
    pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = trained_timm()
    made = make_graft(
        model, layer, fitted(model, layer, probe, conv="max"), example=images()[0][:2], conv="max"
    )
    x = images(count=7, seed=3)[0]
    wanted = made(x).detach()

    program = torch.export.load(export_program(made, tmp_path / "short.pt2"))
    torch.testing.assert_close(program.module()(x).detach(), wanted)

    session = runtime.InferenceSession(export_onnx(made, tmp_path / "short.onnx"))
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=1e-4, atol=1e-5)


def test_export_wants_an_example(tmp_path):
    with pytest.raises(BadValue, match="an example"):
        export_program(nn.Linear(2, 2), tmp_path / "a.pt2")
