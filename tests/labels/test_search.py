"""Wrong labels of a real run that memorised them: what is found, written and chosen, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import nn

import undertow as ut
from undertow.cli import main
from undertow.data.samples import Samples
from undertow.errors import BadData, BadValue, NotThere, UndertowError
from undertow.features import stream_features
from undertow.labels import LabelErrors
from undertow.labels.rate import RateAnswer
from undertow.labels.search import FEWEST_SAMPLES, spread
from undertow.labels.suspects import write_suspects, write_table
from undertow.labels.views import Plan
from undertow.latent import VeLPIC
from undertow.report.gallery import suspects
from undertow.training.labels_file import LabelsFile


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ut.Run:
    """Digits with 40 % of the labels drawn at random, memorised, with early checkpoints."""
    config = ut.TrainConfig(
        model="mlp:256-256-256", data="digits", noise="0.4", epochs=60, device="cpu",
        checkpoints="0,1,2,4,8,16,60",
    )  # fmt: skip
    return ut.train(config, tmp_path_factory.mktemp("runs") / "noisy")


@pytest.fixture(scope="module")
def found(run: ut.Run) -> LabelErrors:
    return ut.label_errors(run)


def test_wrong_labels_are_ranked_flagged_and_mended(found):
    table = found.table
    assert list(table.columns) == ["sample", "given", "proposed", "score", "confidence", "flagged", "true"]
    assert list(table["sample"]) == list(range(len(table)))
    wrong = table["given"] != table["true"]
    assert average_precision_score(wrong, table["score"]) > 0.97
    assert wrong[table["flagged"]].mean() > 0.9
    assert table["flagged"][wrong].mean() > 0.9
    assert (table["proposed"] == table["true"])[table["flagged"] & wrong].mean() > 0.9
    assert (table["proposed"] != table["given"])[table["flagged"]].all()
    assert (table["proposed"] == -1)[~table["flagged"]].all()


def test_the_rate_is_told_with_an_interval_that_holds(found):
    wrong = float((found.given != found.true).double().mean())
    assert found.rate.told
    assert found.rate.low <= wrong <= found.rate.high
    assert found.rate.value == pytest.approx(wrong, abs=0.05)
    assert str(found).startswith(f"{100 * found.rate.value:.1f} % of the labels are wrong")


def test_the_last_loss_would_not_find_them(run, found):
    """What is beaten: the network has memorised most wrong labels."""
    data = run.data()
    logits = run.model(-1)(data.train.x.float() / 8 - 1)
    loss = nn.functional.cross_entropy(logits, data.train.y, reduction="none").detach()
    wrong = (data.train.y != data.train.true).numpy()
    assert average_precision_score(wrong, loss) < average_precision_score(wrong, found.table["score"]) - 0.1


def test_layers_that_memorised_weigh_less(found):
    """Fails if what the network repeats at an epoch is not told before its layers vote."""
    weights = {voter.name: voter.weight for voter in found.found.voters if voter.kind == "discriminant"}
    early = max(weight for name, weight in weights.items() if name.endswith("at epoch 1"))
    late = max(weight for name, weight in weights.items() if name.endswith("at epoch 60"))
    assert late < early / 2
    assert "inputs" in weights
    assert {voter.kind for voter in found.found.voters} == {
        "discriminant",
        "directions",
        "neighbours",
        "dynamics",
    }


def test_true_labels_play_no_part(run, found):
    samples = run.data().train
    for other in (Samples.of(samples.x, samples.y), Samples.of(samples.x, samples.y, true=samples.y * 0)):
        assert ut.label_errors(run, other).beliefs.equal(found.beliefs)
    assert "true" not in ut.label_errors(run, Samples.of(samples.x, samples.y)).table


def test_rows_are_probabilities_and_cleanlab_takes_them(found):
    cleanlab = pytest.importorskip("cleanlab")
    assert found.pred_probs.shape == (len(found.given), 10)
    np.testing.assert_allclose(found.pred_probs.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(found.noise_matrix.sum(1), 1)
    # One process: cleanlab forks its others, and a fork beside threads may wait for ever.
    issues = cleanlab.filter.find_label_issues(found.given.numpy(), found.pred_probs, n_jobs=1)
    assert (found.given != found.true).numpy()[issues].mean() > 0.9


def test_pairwise_noise_is_seen_in_the_matrix(tmp_path):
    config = ut.TrainConfig(
        model="mlp:128",
        data="digits",
        noise="pairwise:0.3",
        epochs=20,
        device="cpu",
        checkpoints="0,1,2,4,8,20",
    )
    found = ut.label_errors(ut.train(config, tmp_path / "pairs"))
    assert found.noise_matrix[range(10), [*range(1, 10), 0]].mean() == pytest.approx(0.3, abs=0.06)
    wrong = found.table["given"] != found.table["true"]
    assert found.rate.low <= wrong.mean() <= found.rate.high
    assert average_precision_score(wrong, found.table["score"]) > 0.95


def test_clean_labels_come_out_clean(tmp_path):
    config = ut.TrainConfig(model="mlp:128", data="digits", epochs=8, device="cpu", checkpoints="1,2,4,8")
    found = ut.label_errors(ut.train(config, tmp_path / "clean"))
    assert found.rate.low == 0
    assert found.rate.high < 0.15
    assert (
        float(found.flagged.double().mean()) < 0.08
    )  # a small network after eight epochs: overlap is still there


def test_cleaned_labels_are_what_was_decided(found):
    relabelled, dropped = (found.clean(way).table.set_index("sample")["label"] for way in ("relabel", "drop"))
    kept = (~found.flagged).nonzero()[:, 0].tolist()
    assert list(dropped.index) == kept
    assert list(dropped) == found.given[kept].tolist()
    proposed = (found.proposed >= 0).nonzero()[:, 0].tolist()
    assert sorted(relabelled.index) == sorted([*kept, *proposed])  # suspects without a proposal are left out
    assert list(relabelled[proposed]) == found.proposed[proposed].tolist()
    few = found.clean("drop", above=0.999)
    assert len(few) == int((found.scores <= 0.999).sum())
    more = found.clean("relabel", above=0.2).table.set_index("sample")[
        "label"
    ]  # suspects that were not flagged
    rows = ((found.scores > 0.2) & ~found.flagged).nonzero()[:, 0]
    assert (torch.tensor(more[rows.tolist()].to_numpy()) != found.given[rows]).all()
    with pytest.raises(BadValue, match="a score from 0 to 1"):
        found.clean(above=2)
    with pytest.raises(UndertowError, match="Did you mean 'drop'"):
        found.clean("dropp")


@pytest.mark.parametrize("way", ["relabel", "drop"])
def test_cleaned_labels_train_a_better_model(run, found, tmp_path, way):
    """By file and command line, and searched again: sample numbers are those of the whole split."""
    path = tmp_path / "cleaned.parquet"
    found.clean(way).write(path)
    assert LabelsFile.read(path).inputs is not None  # the mark of the data that these rows belong to
    assert len(LabelsFile.read(path).sample) == len(found.clean(way))
    line = f"train mlp:256-256-256 --data digits --epochs 20 --device cpu --labels {path} --out {tmp_path / 'again'}"
    assert main(line.split()) == 0
    again = ut.open_run(tmp_path / "again")
    before, after = (one.metrics["test_accuracy"].iloc[-1] for one in (run, again))
    assert after > before + 0.1
    once_more = ut.label_errors(again).clean("drop")
    assert set(once_more.sample.tolist()) <= set(LabelsFile.read(path).sample.tolist())


def test_the_gallery_gets_pictures(run, found, tmp_path):
    images = run.data().train.x  # floats from 0 to 1
    write_suspects(found, images, tmp_path)
    with np.load(tmp_path / "suspects.npz") as stored:
        assert stored["images"].shape == (120, 8, 8, 1)
        wanted = images[int(stored["sample"][0]), 0].numpy() * 255
        np.testing.assert_allclose(stored["images"][0, :, :, 0], wanted, atol=0.5)
    shown = suspects(tmp_path, found.classes)
    assert len(shown) == 120
    assert shown[0]["image"].startswith("data:image/png")
    assert shown[0]["score"] >= shown[-1]["score"]
    assert all(one["given"] != one["proposed"] for one in shown)
    write_suspects(found, images.flatten(1), tmp_path)  # no pictures: those of before are gone
    assert suspects(tmp_path, found.classes) == []


def test_tables_are_written_as_asked(found, tmp_path):
    write_table(found, tmp_path / "a.csv")
    write_table(found, tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "a.csv"), pd.read_parquet(tmp_path / "a.parquet"))
    with pytest.raises(BadValue, match=r"parquet or \.csv"):
        write_table(found, tmp_path / "a.xlsx")


def test_suspects_are_the_flagged_first(found):
    listed = found.suspects(40)
    assert listed["flagged"].all()
    assert listed["score"].is_monotonic_decreasing
    assert listed["score"].min() >= found.scores[found.flagged].sort(descending=True).values[39] - 1e-12


def test_the_chosen_checkpoint_is_near_the_best(run, found):
    choice = ut.choose_checkpoint(run, errors=found)
    kept = run.metrics.set_index("epoch")["test_accuracy"][list(run.epochs)]
    assert kept[choice.epoch] > kept.max() - 0.03
    assert kept[choice.epoch] > kept[60] + 0.1
    assert choice.reason == "agreement with what is believed"
    assert "held_out" not in choice.table
    table, beliefs = choice.table.set_index("epoch"), found.beliefs
    said = run.model(4)(run.data().train.x * 2 - 1).argmax(1)
    agreed = sum(float(beliefs[i, said[i]]) for i in range(len(said))) / len(said)
    assert table["agreement"][4] == pytest.approx(agreed, rel=1e-5)
    assert table["score"].equals((table["agreement"] + table["on_suspects"]) / 2)


def test_noisy_held_out_labels_decide_first(run, found):
    held = run.data().test
    draws = torch.Generator().manual_seed(0)
    noisy = torch.where(torch.rand(len(held.y), generator=draws) < 0.36, (held.y + 3) % 10, held.y)
    choice = ut.choose_checkpoint(run, test=(held.x, noisy), errors=found)
    table = choice.table.set_index("epoch")
    said = run.model(4)(held.x * 2 - 1).argmax(1)
    assert table["held_out"][4] == pytest.approx(float((said == noisy).double().mean()))
    right = {
        at: (run.model(at)(held.x * 2 - 1).argmax(1) == noisy).numpy()
        for at in run.epochs
        if at in table.index
    }
    best, near = table["held_out"].idxmax(), []
    for at, mine in right.items():
        ahead, behind = (right[best] & ~mine).sum(), (mine & ~right[best]).sum()  # only where the two differ
        variance = ((ahead + behind) - (ahead - behind) ** 2 / len(noisy)) / (len(noisy) - 1)
        near += [at] if ahead - behind <= (variance * len(noisy)) ** 0.5 else []
    assert 1 <= len(near) < len(table)
    assert choice.epoch == table["score"][near].idxmax()
    assert "held-out labels" in choice.reason
    kept = run.metrics.set_index("epoch")["test_accuracy"][list(run.epochs)]
    assert kept[choice.epoch] > kept.max() - 0.03


def test_memorising_loses_on_suspects_and_an_unknown_rate_is_said(run, found):
    """Right labels that are memorised raise the agreement: on suspects they cannot."""
    unsure = replace(
        found, found=replace(found.found, rate=RateAnswer(None, 0.0, 0.9, False, "for the test"))
    )
    choice = ut.choose_checkpoint(run, errors=unsure)
    assert "the rate is unknown, so held-out samples choose better" in choice.reason
    table = choice.table.set_index("epoch")
    assert table["on_suspects"][60] < 0.5 < table["on_suspects"].max()
    beliefs, said = found.beliefs, run.model(4)(run.data().train.x * 2 - 1).argmax(1)
    hits = sum(float(beliefs[i, said[i]]) for i in range(len(said)) if said[i] != found.given[i])
    wrong = sum(1 - float(beliefs[i, found.given[i]]) for i in range(len(said)))
    assert table["on_suspects"][4] == pytest.approx(hits / wrong, rel=1e-4)


def test_the_layer_to_graft_on_is_near_the_best(run, found):
    choice, data = ut.choose_checkpoint(run, errors=found), run.data()
    truth = {place: _grafted(run, data, *place) for place in found.knowledge}
    assert truth[choice.graft] > max(truth.values()) - 0.02
    assert truth[choice.graft] > min(truth.values()) + 0.1
    assert tuple(choice.grafts.loc[0, ["epoch", "layer"]]) == choice.graft
    assert list(choice.grafts.columns) == ["epoch", "layer", "promise"]


def _grafted(run, data, epoch: int, layer: str) -> float:
    fixed = ut.repair(run, train=data, checkpoint=epoch, layer=layer, gate=False)
    assert fixed.after is not None
    return fixed.after


def test_the_promise_of_a_layer_is_the_belief_in_what_it_names_out_of_fold(run, found):
    plan = Plan.of(found.given, 10, 5, 0)
    epoch, layer = 4, found.layers[1]
    x = run.data().train.x * 2 - 1
    rows = next(stream_features(run.model(epoch), x, [layer], batch_size=len(x))).features[layer].double()
    total = 0.0
    for fold in plan.folds[:5]:
        others = torch.ones(len(rows), dtype=torch.bool)
        others[fold] = False
        probe = VeLPIC().fit(rows[others], found.given[others])
        said = torch.as_tensor(probe.predict(rows[fold]))
        total += float(found.beliefs[fold].gather(1, said[:, None]).sum())
    assert found.knowledge[epoch, layer] == pytest.approx(total / len(rows), abs=2e-3)


def test_errors_of_other_samples_are_refused(run, found):
    samples = run.data().train
    with pytest.raises(BadValue, match="those of others"):
        ut.choose_checkpoint(run, (samples.x.flip(0), samples.y.flip(0)), errors=found)


def test_a_session_is_searched_once(run, found):
    session = ut.Session(run, run.data())
    assert ut.label_errors(session).beliefs.equal(found.beliefs)
    assert ut.label_errors(session).beliefs.equal(found.beliefs)


def test_one_late_checkpoint_is_said_to_be_one(run):
    found = ut.label_errors(run, checkpoints=[60])
    assert any("There is one checkpoint only" in note for note in found.notes)


def test_data_it_was_never_trained_on_is_doubted(run):
    samples = run.data().train
    shuffled = samples.y[torch.randperm(len(samples.y), generator=torch.Generator().manual_seed(0))]
    found = ut.label_errors(run, (samples.x, shuffled))
    assert found.rate.value is None
    assert found.rate.high > 0.85
    assert any("Was it trained on these samples" in note for note in found.notes)


def test_a_class_without_samples_is_never_proposed(run):
    samples = run.data().train
    kept = samples.y != 9
    found = ut.label_errors(run, (samples.x[kept], samples.y[kept]))
    assert (found.proposed != 9).all()
    assert any("No sample is labelled 9: never proposed" in note for note in found.notes)


def test_the_run_says_how_inputs_are_scaled(run):
    """Also against a DataSet that was loaded with another scaling."""
    data = run.data()
    one, other = (
        ut.label_errors(run, which, checkpoints=[4]) for which in (replace(data, scaling="unit"), data)
    )
    assert one.beliefs.equal(other.beliefs)


def test_checkpoints_are_spread_over_the_logarithm():
    assert spread([1, 2, 3]) == (1, 2, 3)
    assert spread(range(1, 129)) == (1, 2, 4, 8, 16, 32, 64, 128)


def test_maps_that_do_not_fit_are_averaged_over_places(tmp_path):
    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(12 * 64, 10))

    data = ut.load_data("digits")
    torch.manual_seed(0)
    torch.save(build().state_dict(), tmp_path / "epoch_1.pt")
    run = ut.open_run(tmp_path, model=build)
    samples, asked = (data.train.x, data.train.y), {"layers": ["1"], "scaling": "half"}
    scarce, plenty, again = (
        ut.label_errors(run, samples, **asked, memory=size) for size in ("4MB", "2GB", "4MB")
    )
    assert scarce.beliefs.isfinite().all()
    assert not scarce.beliefs.equal(
        plenty.beliefs
    )  # fails if kept votes of averaged maps are taken for whole ones
    assert scarce.beliefs.equal(again.beliefs)


def test_missing_labels_of_a_run_are_proposed_for(run, found):
    samples = run.data().train
    given = samples.y.clone()
    given[:40] = -1
    some = ut.label_errors(run, (samples.x, given))
    assert (some.proposed[:40] == samples.true[:40]).double().mean() > 0.85
    assert not some.flagged[:40].any()
    assert any(note.startswith("40 samples have no label") for note in some.notes)
    agree = (some.flagged == found.flagged)[40:]
    assert agree.double().mean() > 0.98
    with pytest.raises(BadValue, match="a label for every sample, got '40 without one'"):
        ut.choose_checkpoint(run, (samples.x, given), errors=some)


def test_inputs_and_checkpoints_without_numbers_get_one_sentence(run, tmp_path):
    samples = run.data().train
    broken = samples.x.float().index_fill(0, torch.tensor([3]), torch.nan)
    with pytest.raises(BadData, match="got NaN or infinity in the sample at index 3"):
        ut.label_errors(run, (broken, samples.y))

    def build() -> nn.Module:
        return ut.build_model("mlp:256-256-256", (1, 8, 8), 10, seed=0)

    for epoch in (1, 4):
        state = {name: value * torch.nan for name, value in run.model(epoch).state_dict().items()}
        torch.save(state, tmp_path / f"epoch_{epoch}.pt")
    own = ut.open_run(tmp_path, model=build)
    with pytest.raises(BadData, match=r"no checkpoint gives numbers; epoch 4: .*\. Without a run"):
        ut.label_errors(own, (samples.x, samples.y), scaling="half")
    torch.save(run.model(4).state_dict(), tmp_path / "epoch_4.pt")
    found = ut.label_errors(ut.open_run(tmp_path, model=build), (samples.x, samples.y), scaling="half")
    assert "inputs" in {voter.name for voter in found.found.voters}
    assert found.rate.low <= 0.36 <= found.rate.high


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.last = nn.Sequential(nn.Linear(64, 8), nn.ReLU()), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.hidden(x.flatten(1)))


def test_what_cannot_be_searched_is_said(run, tmp_path):
    samples = run.data().train
    with pytest.raises(BadData, match="wanted at least 50 samples, got 49"):
        ut.label_errors(run, samples.take(torch.arange(FEWEST_SAMPLES - 1)))
    with pytest.raises(BadData, match="wanted class numbers 0 to 9, got 10 at index 4"):
        ut.label_errors(run, (samples.x.float(), samples.y + 3))
    with pytest.raises(BadData, match="Targets of a regression"):
        ut.label_errors(run, (samples.x.float(), samples.y.float()))
    with pytest.raises(BadValue, match="folds"):
        ut.label_errors(run, folds=1)
    with pytest.raises(UndertowError, match="fc9"):
        ut.label_errors(run, layers="fc9")
    with pytest.raises(BadValue, match="Leave one of them out"):
        ut.label_errors(run, features=samples.x.flatten(1), labels=samples.y)
    recorder = ut.Recorder(tmp_path / "own")
    recorder.save(Regression(), 0)
    recorder.close()
    own = ut.open_run(tmp_path / "own", model=Regression)
    with pytest.raises(BadValue, match=r"one output per class"):
        ut.label_errors(own, (samples.x.float(), samples.y))
    with pytest.raises(NotThere, match="does not say what it was trained on"):
        ut.label_errors(own)
