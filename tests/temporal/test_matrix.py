"""All composites of a run: against whole composites one by one, and what is counted, held and refused."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import undertow as ut
from undertow.data.inputs import to_inputs
from undertow.errors import BadData, BadValue, UnknownName
from undertow.temporal.batchnorm import recalibrated
from undertow.temporal.matrix import Composer, composite_matrix
from undertow.temporal.matrix_plan import make_plan
from undertow.temporal.matrix_result import COLUMNS

CONVOLUTIONAL = "svhn-cnn:width=2,dropout=0.3"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = ut.TrainConfig(
        "mlp:16-12", data="digits", noise="0.4", train_size=200, test_size=90, epochs=3, checkpoints="every:1",
        lr=1e-2, device="cpu",
    )  # fmt: skip
    return ut.train(config, tmp_path_factory.mktemp("runs") / "mlp")


@pytest.fixture(scope="module")
def normed(tmp_path_factory):
    """A run of someone else's loop: other weights and batch-norm statistics at every checkpoint."""
    folder = tmp_path_factory.mktemp("runs") / "normed"
    build = partial(ut.build_model, CONVOLUTIONAL, (3, 32, 32), 4, seed=0)
    noise = torch.Generator().manual_seed(0)
    with ut.Recorder(folder) as recorder:
        for at in range(3):
            model = build()
            with torch.no_grad():
                for name, value in model.state_dict().items():
                    if value.is_floating_point():
                        size = 0.5 if "running" in name else 0.1
                        value.add_(torch.rand(value.shape, generator=noise) * size)
            recorder.save(model, at)
    return ut.open_run(folder, model=build)


def images(count=10, seed=0):
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, 32, 32, generator=draws), torch.randint(4, (count,), generator=draws)


def whole_composites(run, found, inputs):
    """Outputs (cuts, S, D, N, K) of merged networks, one whole pass per composite."""
    names = list(dict(run.fresh().named_children()))
    rows = []
    for cut in found.cuts:
        shallow = tuple(f"{name}." for name in names[: names.index(cut) + 1])
        for s in found.shallow:
            for t in found.deep:
                model, early, late = run.fresh().eval(), run.weights(s), run.weights(t)
                model.load_state_dict({k: early[k] if k.startswith(shallow) else late[k] for k in late})
                with torch.no_grad():
                    rows.append(model(inputs))
    return torch.stack(rows).view(len(found.cuts), len(found.shallow), len(found.deep), *rows[0].shape)


def test_every_number_is_that_of_the_whole_composite(run):
    """Fails if an axis is turned round, a batch lands in the wrong rows, or a loss is weighted wrongly."""
    data = run.data()
    found = composite_matrix(run, batch_size=32)
    inputs = to_inputs(data.test.x, data.scaling)
    outputs = whole_composites(run, found, inputs)
    assert (found.cuts, found.shallow, found.deep) == (("layer1", "layer2"), (0, 1, 2, 3), (0, 1, 2, 3))
    assert found.predictions.dtype == np.int16
    np.testing.assert_array_equal(found.predictions, outputs.argmax(-1))
    flat = outputs.double().view(-1, 10)
    repeated = data.test.y.repeat(len(flat) // 90)
    losses = nn.functional.cross_entropy(flat, repeated, reduction="none").view(2, 4, 4, 90)
    np.testing.assert_allclose(found.losses["true"], losses.mean(-1), rtol=1e-5)
    np.testing.assert_allclose(found.loss_errors["true"], losses.std(-1) / 90**0.5, rtol=1e-4)
    np.testing.assert_allclose(found.accuracy(), (outputs.argmax(-1) == data.test.y).double().mean(-1))
    assert found.sample_losses == {}


def test_the_diagonal_is_the_model_itself_to_the_bit(run):
    data = run.data()
    found = composite_matrix(run, batch_size=90, sample_losses=True)
    for at in found.models:
        with torch.no_grad():
            outputs = run.model(at)(to_inputs(data.test.x, data.scaling))
        loss = nn.functional.cross_entropy(outputs.double(), data.test.y, reduction="none")
        for cut in found.cuts:
            np.testing.assert_array_equal(found.pair(cut, at, at), outputs.argmax(1))
            kept = found.sample_losses["true"][found.cut(cut), at, at]
            np.testing.assert_array_equal(kept, loss.float())
        np.testing.assert_array_equal(found.own(at), outputs.argmax(1))
        np.testing.assert_allclose(found.own_losses["true"][at], loss.mean(), rtol=1e-12)


def test_a_column_and_a_row_carry_the_whole_models_too(run):
    square = composite_matrix(run)
    column = composite_matrix(run, deep=[3], shallow=[0, 2])
    row = composite_matrix(run, shallow=1, deep="0,2,3", cuts="layer2")
    np.testing.assert_array_equal(column.predictions, square.predictions[:, [0, 2]][:, :, [3]])
    np.testing.assert_array_equal(row.predictions, square.predictions[1:, [1]][:, :, [0, 2, 3]])
    assert (column.models, row.models) == ((0, 2, 3), (0, 1, 2, 3))
    for found in (column, row):
        for at in found.models:
            np.testing.assert_array_equal(found.own(at), square.own(at))
            m = found.models.index(at)
            np.testing.assert_allclose(found.own_losses["true"][m], square.own_losses["true"][at], rtol=1e-6)


def test_no_sample_goes_through_a_shallow_part_twice(run, monkeypatch):
    """T shallow passes for all cuts; fails if a cut or a block of samples costs another pass."""
    from undertow.temporal import matrix_evaluation

    seen = []
    real = matrix_evaluation.capture

    def counted(model, inputs, cuts, **options):
        seen.append((len(inputs), tuple(cuts)))
        return real(model, inputs, cuts, **options)

    composer = Composer(run, batch_size=32)
    monkeypatch.setattr(matrix_evaluation, "capture", counted)
    tight = composer.matrix()
    passes = seen[1:]  # the first looks at a few samples to plan the memory
    assert sum(count for count, _ in passes) == 4 * 90
    assert {cuts for _, cuts in passes} == {("layer1", "layer2")}
    np.testing.assert_array_equal(tight.predictions, composite_matrix(run).predictions)


def test_a_small_budget_changes_nothing_but_the_plan(run):
    roomy = composite_matrix(run, batch_size=16)
    steps = []
    least = roomy.predictions.nbytes + roomy.own_predictions.nbytes + 2 * 4 * 90 * 8 + 90 * 8 + 16 * 28 * 4
    tight = composite_matrix(run, batch_size=16, memory=least, progress=lambda *now: steps.append(now))
    np.testing.assert_array_equal(tight.predictions, roomy.predictions)
    np.testing.assert_array_equal(tight.losses["true"], roomy.losses["true"])
    assert "4 deep parts held" in roomy.plan
    assert "features of 16 samples at a time (1.8 kB), one deep part at a time" in tight.plan
    assert steps == [(n + 1, 4 * 4 * 6) for n in range(4 * 4 * 6)]
    with pytest.raises(BadValue, match=r"memory: wanted at least .* of results and 1.8 kB of features"):
        composite_matrix(run, batch_size=16, memory=least - 1)


def test_the_plan_keeps_to_the_budget():
    sizes = {"results": 1000, "model": 500, "deep": 4, "sample": 10, "count": 100, "batch": 8}
    for budget in range(1080, 5000, 7):
        plan = make_plan(budget, **sizes)
        most = max(sum(rows.stop - rows.start for rows in block) for block in plan.blocks)
        assert 1000 + plan.hold * 4 * 500 + 10 * most <= budget
        covered = [at for block in plan.blocks for rows in block for at in range(rows.start, rows.stop)]
        assert covered == list(range(100))
    with pytest.raises(BadValue, match=r"at least 1.1 kB"):
        make_plan(1079, **sizes)


PEAK = """
import resource, sys, tempfile, torch, undertow as ut
from torch import nn
from undertow.temporal.matrix import Composer
torch.set_num_threads(1)

def build():
    return nn.Sequential(nn.Linear(4, 4096), nn.ReLU(), nn.Linear(4096, 2))

with tempfile.TemporaryDirectory() as folder:
    with ut.Recorder(folder) as recorder:
        for at in range(2):
            recorder.save(build(), at)
    run = ut.open_run(folder, model=build)
    x = torch.randn(20_000, 4)
    composer = Composer(run, "1", x=x, memory=sys.argv[1], batch_size=100)
    composer.matrix(x[:200])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    composer.matrix(x)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_memory_stays_within_the_budget():
    """20,000 samples of 16 kB features (328 MB) in 30 MB; fails if features of a checkpoint pile up."""
    done = subprocess.run([sys.executable, "-c", PEAK, "30MB"], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 45


def test_labels_of_training_are_given_and_true(run):
    data = run.data()
    found = composite_matrix(run, "train", checkpoints="last")
    assert set(found.labels) == {"given", "true"}
    np.testing.assert_array_equal(found.labels["given"], data.train.y)
    for name, labels in (("given", data.train.y), ("true", data.train.true)):
        hits = found.predictions[0, 0, 0] == labels.numpy()
        assert found.accuracy(name)[0, 0, 0] == hits.mean()
    mine = composite_matrix(run, data.test.x, data.test.y, split="mine", checkpoints=[3])
    assert mine.split == "mine"
    np.testing.assert_allclose(mine.own_accuracy()[0], run.metrics["test_accuracy"].iloc[-1])


def test_tidy_rows(run):
    found = composite_matrix(run, checkpoints=[0, 3], cuts=["layer1"])
    table = found.table
    assert tuple(table.columns) == COLUMNS
    assert len(table) == 2 * (4 + 2)  # accuracy and loss of four composites and two whole models
    assert set(table["lens"]) == {"temporal"}
    one = table.query("measure == 'accuracy' and layer == 'layer1' and shallow == 0 and deep == 3").iloc[0]
    assert one["value"] == found.accuracy()[0, 0, 1]
    assert one["low"] <= one["value"] <= one["high"]
    assert one["n"] == 90
    assert "no batch-norm statistics after the cut" in one["note"]
    own = table.query("measure == 'loss' and layer == 'output' and deep == 3").iloc[0]
    assert own["value"] == found.own_losses["true"][1]


def test_batch_norm_statistics_go_with_the_deep_part(normed):
    x, y = images()
    found = composite_matrix(normed, x, y, cuts=["block1", "block3"])
    outputs = whole_composites(normed, found, x)
    np.testing.assert_array_equal(found.predictions, outputs.argmax(-1))
    assert found.batch_norm == ("batch norm: own statistics of the deep part",) * 2
    assert found.table["note"].str.contains("batch").all()


def test_recalibrated_composites_are_those_with_statistics_of_their_own(normed):
    """Against a merged network with its statistics estimated by itself; the whole models keep theirs."""
    (x, y), (other, _) = images(), images(24, seed=1)
    composer = Composer(normed, ["block1", "block3"], x=x, batch_norm="recalibrated", calibration=other)
    found = composer.matrix(x, y, sample_losses=True)
    plain = composite_matrix(normed, x, y, cuts=["block1", "block3"])
    np.testing.assert_array_equal(found.own_predictions, plain.own_predictions)
    for cut in found.cuts:
        for s, t in ((0, 2), (2, 0), (1, 1)):
            model = recalibrated(composer.model(s, t, cut), other, cut=cut)
            with torch.no_grad():
                outputs = model(x)
            np.testing.assert_array_equal(found.pair(cut, s, t), outputs.argmax(1))
            loss = nn.functional.cross_entropy(outputs.double(), y, reduction="none")
            kept = found.sample_losses["true"][found.cut(cut), s, t]
            np.testing.assert_allclose(kept, loss, rtol=1e-4, atol=1e-6)
    assert not np.allclose(found.losses["true"], plain.losses["true"])
    assert found.batch_norm[0] == "batch norm: recalibrated on 24 calibration samples"


def test_composer_gives_composites_as_modules(run):
    composer = Composer(run, "layer2")
    found, data = composer.matrix(), run.data()
    with torch.no_grad():
        said = composer.model(0, 3)(to_inputs(data.test.x, data.scaling)).argmax(1)
    np.testing.assert_array_equal(found.pair("layer2", 0, 3), said)
    with pytest.raises(BadValue, match=r"one of its cuts \(layer2\)"):
        composer.model(0, 3, "layer1")


class Padded(nn.Module):
    """Reads its second input after the cut, but only where it says so for some sample."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x, keep):
        all_kept = bool(keep.all())
        h = self.first(x)
        return self.last(h if all_kept else h * keep[:, None])


def test_what_goes_round_the_cut_for_some_samples_only_is_found_on_all_of_them(tmp_path):
    """The first samples show nothing: fails if the cut is tried on them alone."""
    with ut.Recorder(tmp_path / "run") as recorder, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for at in range(2):
            recorder.save(Padded(), at)
    padded = ut.open_run(tmp_path / "run", model=Padded)
    x, keep = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.ones(40)
    fine = composite_matrix(padded, {"x": x, "keep": keep}, cuts="first", batch_size=8)
    assert fine.predictions.shape == (1, 2, 2, 40)
    assert fine.labels == {}
    assert fine.table.empty
    keep[33] = 0
    with pytest.raises(BadData, match="among samples 32 to 39 one does not: something goes round"):
        composite_matrix(padded, {"x": x, "keep": keep}, cuts="first", batch_size=8)


def test_answers_that_are_no_numbers_are_told(normed, tmp_path):
    """A diverged checkpoint: -1, no value and a note; the others are not touched."""
    build = partial(ut.build_model, "mlp:8-8", (4,), 3, seed=0)
    with ut.Recorder(tmp_path / "run") as recorder:
        for at in range(2):
            model = build()
            with torch.no_grad():
                model.head.weight.mul_(float("nan") if at else 1.0)
            recorder.save(model, at)
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    broken = ut.open_run(tmp_path / "run", model=build)
    found = composite_matrix(broken, x, torch.zeros(12, dtype=torch.int64), cuts="layer1")
    assert (found.pair("layer1", 0, 1) == -1).all()
    assert (found.pair("layer1", 1, 0) >= 0).all()
    bad = found.table.query("measure == 'loss' and deep == 1 and layer == 'layer1'")
    assert bad["value"].isna().all()
    assert bad["note"].str.contains("no finite numbers").all()
    assert (bad["n"] == 0).all()


def test_a_single_output_is_read_as_training_read_it(tmp_path):
    config = ut.TrainConfig(
        "mlp:8-8", data="digits", train_size=100, test_size=40, epochs=1, loss="mse", target="scalar",
        checkpoints="every:1", device="cpu",
    )  # fmt: skip
    run = ut.train(config, tmp_path / "run")
    found = composite_matrix(run)
    assert found.losses == {}
    assert found.own_accuracy()[1] == pytest.approx(run.metrics["test_accuracy"].iloc[-1])


def test_what_is_refused(run):
    x = torch.rand(8, 1, 8, 8)
    wrong = [
        (BadValue, "own or recalibrated", {"batch_norm": "recalibrate"}),
        (BadValue, "1 or more", {"batch_size": 0}),
        (BadValue, "The nearest are 1, 2, 3", {"checkpoints": [9]}),
        (BadValue, "all, last, every:5", {"checkpoints": "some"}),
        (BadValue, "at least one", {"checkpoints": []}),
        (UnknownName, "Did you mean 'layer1'", {"cuts": "layr1"}),
        (BadValue, "nothing with weights runs after it", {"cuts": "head"}),
        (UnknownName, "no split 'tests'. Did you mean 'test'", {"x": "tests"}),
        (BadValue, "Leave y out", {"x": "test", "y": torch.zeros(90, dtype=torch.int64)}),
        (BadData, "wanted 8 labels", {"x": x, "y": torch.zeros(7, dtype=torch.int64)}),
        (BadData, "class numbers 0 to 9.*got 10 at index 2", {"x": x, "y": torch.arange(8) + 8}),
        (BadValue, "Samples, a DataSet, inputs", {"x": np.zeros(3)}),
    ]
    for kind, message, settings in wrong:
        with pytest.raises(kind, match=message):
            composite_matrix(run, **settings)
    found = composite_matrix(run, x, checkpoints="last")
    for kind, message, ask in (
        (UnknownName, "no cut 'layer9'", lambda: found.cut("layer9")),
        (BadValue, "one of 3, got 2", lambda: found.own(2)),
        (UnknownName, "came without labels", found.accuracy),
    ):
        with pytest.raises(kind, match=message):
            ask()
