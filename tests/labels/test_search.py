"""Wrong labels of a real run that learned them by heart: what is found, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import nn

import undertow as ut
from undertow.data.samples import Samples
from undertow.errors import BadData, BadValue, NotThere, UndertowError
from undertow.features import stream_features
from undertow.labels import LabelErrors
from undertow.labels.search import FEWEST_SAMPLES
from undertow.labels.suspects import cleaned_labels, write_suspects, write_table
from undertow.labels.voters import split_folds
from undertow.latent import VeLPIC
from undertow.report.gallery import suspects
from undertow.training.labels_file import LabelsFile


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ut.Run:
    """Digits with 40 % of the labels drawn at random, learned by heart, with early checkpoints."""
    config = ut.TrainConfig(
        model="mlp:256-256-256",
        data="digits",
        noise="0.4",
        epochs=60,
        device="cpu",
        checkpoints="0,1,2,4,8,16,60",
    )
    return ut.train(config, tmp_path_factory.mktemp("runs") / "noisy")


@pytest.fixture(scope="module")
def found(run: ut.Run) -> LabelErrors:
    return ut.label_errors(run)


def test_wrong_labels_are_ranked_first_and_mended(found):
    table = found.table
    assert list(table.columns) == ["sample", "given", "proposed", "score", "confidence", "true"]
    assert list(table["sample"]) == list(range(len(table)))
    wrong = table["given"] != table["true"]
    assert average_precision_score(wrong, table["score"]) > 0.95
    suspected = table["score"] > 0.5
    assert (table["proposed"] == table["true"])[suspected].mean() > 0.9
    assert found.noise == "even"
    assert found.noise_low <= wrong.mean() <= found.noise_high
    assert found.noise_high - found.noise_low < 0.2


def test_the_last_loss_would_not_find_them(run, found):
    """What is beaten: the network has learned most wrong labels by heart."""
    data = run.data()
    logits = run.model(-1)(data.train.x.float() / 8 - 1)
    loss = nn.functional.cross_entropy(logits, data.train.y, reduction="none").detach()
    wrong = (data.train.y != data.train.true).numpy()
    assert average_precision_score(wrong, loss) < average_precision_score(wrong, found.table["score"]) - 0.1


def test_true_labels_play_no_part(run, found):
    samples = run.data().train
    for other in (Samples.of(samples.x, samples.y), Samples.of(samples.x, samples.y, true=samples.y * 0)):
        again = ut.label_errors(run, other)
        assert again.beliefs.equal(found.beliefs)
    assert "true" not in ut.label_errors(run, Samples.of(samples.x, samples.y)).table


def test_rows_are_probabilities_and_cleanlab_takes_them(found):
    cleanlab = pytest.importorskip("cleanlab")
    assert found.pred_probs.shape == (len(found.given), 10)
    np.testing.assert_allclose(found.pred_probs.sum(1), 1)
    np.testing.assert_allclose(found.noise_matrix.sum(1), 1)
    issues = cleanlab.filter.find_label_issues(found.given.numpy(), found.pred_probs)
    wrong = (found.given != found.true).numpy()
    assert wrong[issues].mean() > 0.9


def test_pairwise_noise_is_seen_as_a_matrix(tmp_path):
    config = ut.TrainConfig(
        model="mlp:128",
        data="digits",
        noise="pairwise:0.3",
        epochs=20,
        device="cpu",
        checkpoints="0,1,2,4,8,20",
    )
    found = ut.label_errors(ut.train(config, tmp_path / "pairs"))
    assert found.noise == "matrix"
    next_class = found.noise_matrix[range(10), [*range(1, 10), 0]]
    assert next_class.mean() == pytest.approx(0.3, abs=0.06)
    wrong = found.table["given"] != found.table["true"]
    assert average_precision_score(wrong, found.table["score"]) > 0.95


def test_cleaned_labels_train_a_better_model(run, found, tmp_path):
    for way in ("relabel", "drop"):
        cleaned_labels(found, run, way).write(tmp_path / f"{way}.parquet")
    sizes = {way: len(LabelsFile.read(tmp_path / f"{way}.parquet").sample) for way in ("relabel", "drop")}
    assert sizes == {"relabel": len(found.given), "drop": int((found.scores <= 0.5).sum())}
    config = ut.TrainConfig(
        model="mlp:256-256", data="digits", labels=str(tmp_path / "relabel.parquet"), epochs=20, device="cpu"
    )
    again = ut.train(config, tmp_path / "again")
    before, after = (one.metrics["test_accuracy"].iloc[-1] for one in (run, again))
    assert after > before + 0.1
    # Searched again, and cleaned again: sample numbers are still those of the whole split.
    config = ut.TrainConfig(
        model="mlp:256-256", data="digits", labels=str(tmp_path / "drop.parquet"), epochs=4, device="cpu"
    )
    part = ut.train(config, tmp_path / "part")
    assert set(cleaned_labels(ut.label_errors(part), part, "drop").sample.tolist()) <= set(
        LabelsFile.read(tmp_path / "drop.parquet").sample.tolist()
    )


def test_the_gallery_gets_pictures(run, found, tmp_path):
    images = run.data().train.x  # floats from 0 to 1
    write_suspects(found, images, tmp_path)
    with np.load(tmp_path / "suspects.npz") as stored:
        assert stored["images"].shape == (120, 8, 8, 1)
        wanted = images[int(stored["sample"][0]), 0].numpy() * 255
        np.testing.assert_allclose(stored["images"][0, :, :, 0], wanted, atol=0.5)
    shown = suspects(tmp_path, found.classes)
    assert len(shown) == min(120, int((found.beliefs.argmax(1) != found.given).sum()))
    assert shown[0]["image"].startswith("data:image/png")
    assert shown[0]["score"] >= shown[-1]["score"]
    assert all(one["given"] != one["proposed"] for one in shown)
    write_suspects(found, images.flatten(1), tmp_path)  # no pictures: those of before are gone
    assert suspects(tmp_path, found.classes) == []


def test_tables_are_written_as_asked(found, tmp_path):
    import pandas as pd

    write_table(found, tmp_path / "a.csv")
    write_table(found, tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "a.csv"), pd.read_parquet(tmp_path / "a.parquet"))
    with pytest.raises(BadValue, match=r"parquet or \.csv"):
        write_table(found, tmp_path / "a.xlsx")


def test_the_chosen_checkpoint_is_near_the_best(run, found):
    choice = ut.choose_checkpoint(run, errors=found)
    accuracy = run.metrics.set_index("epoch")["test_accuracy"]
    kept = accuracy[list(run.epochs)]
    assert kept[choice.epoch] > kept.max() - 0.03
    assert kept[choice.epoch] > kept[60] + 0.1
    held = run.data().test
    again = ut.choose_checkpoint(run, errors=found, held_out=(held.x, held.y))
    assert {"held_out", "agreement", "on_suspects", "score"} <= set(again.table.columns)
    best = again.table["held_out"].max()
    assert again.table.set_index("epoch")["held_out"][again.epoch] > best - 0.02


def test_the_layer_to_graft_on_is_near_the_best(run, found):
    """And the promise is what a plain count over folds says."""
    choice, data = ut.choose_checkpoint(run, errors=found), run.data()
    truth = {place: _grafted(run, data, *place) for place in found.knowledge}
    assert truth[choice.graft] > max(truth.values()) - 0.02
    assert truth[choice.graft] > min(truth.values()) + 0.1
    assert tuple(choice.grafts.loc[0, ["epoch", "layer"]]) == choice.graft
    assert list(choice.grafts.columns) == ["epoch", "layer", "promise"]
    errors = [abs(found.knowledge[place] - share) for place, share in truth.items()]
    assert np.mean(errors) < 0.05


def _grafted(run, data, epoch: int, layer: str) -> float:
    fixed = ut.repair(run, train=data, checkpoint=epoch, layer=layer, gate=False)
    assert fixed.after is not None
    return fixed.after


def test_the_promise_of_a_layer_is_the_belief_in_what_it_names_out_of_fold(run, found):
    folds = split_folds(found.given, classes=10, count=5, seed=0)
    epoch, layer = 4, found.layers[1]
    x = run.data().train.x * 2 - 1
    rows = next(stream_features(run.model(epoch), x, [layer], batch_size=len(x))).features[layer]
    total = 0.0
    for fold in folds:
        others = torch.ones(len(rows), dtype=torch.bool)
        others[fold] = False
        probe = VeLPIC().fit(rows[others].double(), found.given[others])
        said = torch.as_tensor(probe.predict(rows[fold].double()))
        total += float(found.early_beliefs[fold].gather(1, said[:, None]).sum())
    assert found.knowledge[epoch, layer] == pytest.approx(total / len(rows), abs=1e-3)


def test_where_layers_are_unsure_only_suspects_count(run, found):
    """Right labels learned by heart raise the agreement: on suspects they cannot."""
    wide = replace(found, noise_low=0.1, noise_high=0.5)
    choice = ut.choose_checkpoint(run, errors=wide)
    table = choice.table.set_index("epoch")
    assert table["score"].equals(table["on_suspects"])
    assert choice.epoch == table["on_suspects"].idxmax()
    assert table["on_suspects"][60] < 0.5 < table["on_suspects"].max()
    beliefs, said = found.early_beliefs, run.model(4)(run.data().train.x * 2 - 1).argmax(1)
    hits = sum(float(beliefs[i, said[i]]) for i in range(len(said)) if said[i] != found.given[i])
    wrong = sum(1 - float(beliefs[i, found.given[i]]) for i in range(len(said)))
    assert table["on_suspects"][4] == pytest.approx(hits / wrong, rel=1e-6)


def test_one_checkpoint_is_said_to_be_one(run):
    found = ut.label_errors(run, checkpoints=[60])
    assert any("One checkpoint only" in note for note in found.notes)
    assert ut.label_errors(run, checkpoints=[0, 0]).rates.keys() == {0}


def test_data_it_was_never_trained_on_is_doubted(run):
    samples = run.data().train
    found = ut.label_errors(run, (samples.x, (samples.true + 1) % 10))
    assert any("was it trained on these samples" in note for note in found.notes)
    shuffled = samples.y[torch.randperm(len(samples.y), generator=torch.Generator().manual_seed(0))]
    with pytest.raises(BadData, match="no layer of these checkpoints tells the labels better than the sizes"):
        ut.label_errors(run, (samples.x, shuffled))


def rare_and_common(run, *, wrong: float) -> tuple[Samples, torch.Tensor]:
    """Eights against all other digits: one in ten; a share of the labels turned round."""
    x, true = run.data().train.x, (run.data().train.true == 8).long()
    turned = torch.rand(len(true), generator=torch.Generator().manual_seed(1)) < wrong
    return Samples.of(x, torch.where(turned, 1 - true, true)), turned


@pytest.fixture(scope="module")
def pair_run(run, tmp_path_factory) -> ut.Run:
    """Two outputs on the features of the run's layers: whoever learned ten classes can tell one from the rest."""

    def build() -> nn.Module:
        return ut.build_model("mlp:256-256-256", (1, 8, 8), 2, seed=0)

    folder = tmp_path_factory.mktemp("pairs")
    for epoch in (1, 2, 4):
        model, state = build(), run.model(epoch).state_dict()
        own = model.state_dict()
        model.load_state_dict(
            {name: state[name] if state[name].shape == own[name].shape else own[name] for name in own}
        )
        torch.save(model.state_dict(), folder / f"epoch_{epoch}.pt")
    return ut.open_run(folder, model=build)


def test_a_rare_class_is_not_taken_for_noise(pair_run, run):
    """Fails if classes count as equally likely: the noise would have to explain that one is nine times as large."""
    clean, _ = rare_and_common(run, wrong=0.0)
    found = ut.label_errors(pair_run, (clean.x, clean.y), scaling="half")
    assert found.noise_rate < 0.03
    assert int((found.scores > 0.5).sum()) < 0.02 * len(clean.y)
    noisy, turned = rare_and_common(run, wrong=0.1)
    found = ut.label_errors(pair_run, (noisy.x, noisy.y), scaling="half")
    assert found.noise_low <= float(turned.double().mean()) <= found.noise_high
    suspected = found.scores > 0.5
    assert float(turned[suspected].double().mean()) > 0.9


def test_a_class_without_samples_is_never_proposed(run):
    samples = run.data().train
    kept = samples.y != 9
    found = ut.label_errors(run, (samples.x[kept], samples.y[kept]))
    assert float(found.beliefs[:, 9].max()) == 0
    assert not found.pred_probs[:, 9].any()
    assert found.noise_matrix[9].tolist() == [0.0] * 9 + [1.0]
    assert any("No sample is labelled 9" in note for note in found.notes)


def test_the_run_says_how_inputs_are_scaled(run):
    """Also against a DataSet that was loaded with another scaling."""
    data = run.data()
    assert run.facts.data is not None
    other = replace(data, scaling="unit")
    assert ut.label_errors(run, other, checkpoints=[4]).beliefs.equal(
        ut.label_errors(run, data, checkpoints=[4]).beliefs
    )


def test_errors_of_other_samples_are_refused(run, found):
    samples = run.data().train
    with pytest.raises(BadValue, match="those of others"):
        ut.choose_checkpoint(run, (samples.x.flip(0), samples.y.flip(0)), errors=found)


def test_maps_that_do_not_fit_are_averaged_over_places(tmp_path):
    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(12 * 64, 10))

    data = ut.load_data("digits")
    torch.manual_seed(0)
    torch.save(build().state_dict(), tmp_path / "epoch_1.pt")
    run = ut.open_run(tmp_path, model=build)
    samples, asked = (data.train.x, data.train.y), {"layers": ["1"], "scaling": "half"}
    plenty, told = ut.label_errors(run, samples, **asked), []
    scarce = ut.label_errors(run, samples, **asked, memory="4MB", watch=lambda *done: told.append(done))
    assert not any("Averaged" in note for note in plenty.notes)
    assert "Averaged over places, to fit into 4MB of memory: 1." in scarce.notes
    assert not scarce.beliefs.equal(plenty.beliefs)
    assert told[-1] == (2, 2)
    with pytest.raises(BadValue, match=r"label_errors\(memory=...\): wanted .* at least for 1297 samples"):
        ut.label_errors(run, samples, **asked, memory="100KB")


def test_features_in_several_passes_say_the_same(run, found):
    """Also when discriminants are not kept for the second round."""
    several = ut.label_errors(run, memory="6MB")
    torch.testing.assert_close(several.beliefs, found.beliefs, atol=1e-6, rtol=0)


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.last = nn.Sequential(nn.Linear(64, 8), nn.ReLU()), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.hidden(x.flatten(1)))


def test_what_cannot_be_searched_is_said(run, tmp_path):
    samples = run.data().train
    few = samples.take(torch.arange(FEWEST_SAMPLES - 1))
    with pytest.raises(BadData, match="wanted at least 50 samples, got 49"):
        ut.label_errors(run, few)
    with pytest.raises(BadData, match=r"class numbers 0 to 9.*got 12"):
        ut.label_errors(run, (samples.x.float(), samples.y + 3))
    with pytest.raises(BadData, match="Targets of a regression"):
        ut.label_errors(run, (samples.x.float(), samples.y.float()))
    with pytest.raises(BadValue, match="folds"):
        ut.label_errors(run, folds=1)
    with pytest.raises(UndertowError, match="Did you mean 'matrix'"):
        ut.label_errors(run, noise="matrx")
    with pytest.raises(UndertowError, match="fc9"):
        ut.label_errors(run, layers="fc9")
    recorder = ut.Recorder(tmp_path / "own")
    recorder.save(Regression(), 0)
    recorder.close()
    own = ut.open_run(tmp_path / "own", model=Regression)
    with pytest.raises(BadValue, match=r"one output per class.*\(2, 1\)"):
        ut.label_errors(own, (samples.x.float(), samples.y))
    with pytest.raises(NotThere, match="does not say what it was trained on"):
        ut.label_errors(own)
