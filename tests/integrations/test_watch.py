"""A plain loop, watched: what is kept, found, warned of and written; and the same after a kill."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from digits import digits, loader, network
from torch.nn.functional import cross_entropy

import undertow as ut
from undertow.errors import BadValue, RunProblem, UnknownName
from undertow.integrations.alarm import alarm
from undertow.integrations.look import Look
from undertow.integrations.settings import WatchConfig, is_due
from undertow.integrations.watch import MemorisationWarning, Watch
from undertow.shares import Share
from undertow.training.schedule import CheckpointSchedule

LAST = 30


def loop(watch: Watch, start: int = 0, stop: int = LAST, model=None, adam=None) -> torch.nn.Module:
    model = model or network()
    adam = adam or torch.optim.Adam(model.parameters(), 8e-3)
    if start == 0:
        watch.epoch(model, 0)
    for epoch in range(start + 1, stop + 1):
        for x, y in loader():
            adam.zero_grad()
            cross_entropy(model(x), y).backward()
            adam.step()
        watch.epoch(model, epoch, loss=1.0)
    return model


def watched(folder: Path, **settings: object) -> Watch:
    train, test = digits()
    return Watch(folder, ut.Samples.of(train[0], train[1], train[2]), test, **settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    folder = tmp_path_factory.mktemp("watch") / "run"
    logged: list[tuple[dict[str, float], int]] = []
    watch = watched(
        folder, keep="every:10", measure="every:5", log=lambda values, at: logged.append((values, at))
    )
    with pytest.warns(MemorisationWarning, match="Memorisation began by epoch .* known to be wrong"):
        model = loop(watch)
    watch.close(model)
    watch.logged = logged  # type: ignore[attr-defined]
    return watch


def test_checkpoints_are_kept_and_looks_are_logged_on_schedule(whole: Watch):
    run = ut.open_run(whole.path)
    assert run.epochs == (0, 10, 20, 30)
    assert [at for _, at in whole.logged] == [look.at for look in whole.looks] == list(range(0, 31, 5))  # type: ignore[attr-defined]
    assert {"loss", "test_accuracy", "latent.1.masc", "d_lr"} <= set(run.metrics.columns)


def test_what_is_found_is_what_the_plain_functions_say(whole: Watch):
    (x, given, true), (held, y) = digits()
    model = ut.open_run(whole.path, model=network).model(30)
    look = whole.looks[-1]
    with torch.no_grad():
        answers, entering = model(held).argmax(1), model[:4](held)
        wrong = given != true
        assert look.test == Share(int((answers == y).sum()), 400)
        assert look.wrong == Share(int((model(x).argmax(1) == given)[wrong].sum()), int(wrong.sum()))
        assert look.d_lr == pytest.approx(ut.d_lr(entering, model(held)), abs=1e-6)
        probe = ut.MASC().fit(model[:4](x), given)
        assert look.latent["3"]["masc"] == pytest.approx(probe.score(entering, y))
    noise = look.noise
    assert noise is not None
    assert noise[1] <= 0.02, "held-out digits are labelled rightly"


def test_memorisation_is_seen_before_the_end(whole: Watch):
    assert whole.memorised_at is not None
    assert 5 <= whole.memorised_at < LAST
    assert whole.looks[0].wrong is not None
    assert whole.looks[0].wrong.value < 0.25


def test_the_report_is_written(whole: Watch):
    page = (whole.path / "report.html").read_text(encoding="utf-8")
    assert "memoris" in page
    assert whole.audit is not None
    assert whole.audit.verdict.topic("memorising").answer == "yes"  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore::undertow.integrations.watch.MemorisationWarning")
def test_a_resumed_loop_finds_the_same(whole: Watch, tmp_path: Path):
    """Killed after epoch 12, gone on from a checkpoint of epoch 10: no look is doubled, none is lost."""
    first = watched(tmp_path / "run", keep="every:10", measure="every:5", report="none")
    model, state = network(), {}
    adam = torch.optim.Adam(model.parameters(), 8e-3)
    loop(first, 0, 10, model, adam)
    torch.save(
        {"watch": first.state_dict(), "model": model.state_dict(), "adam": adam.state_dict()},
        tmp_path / "last.pt",
    )
    first.epoch(model, 11)
    first.close()

    state = torch.load(tmp_path / "last.pt", weights_only=True)
    second = watched(tmp_path / "run", keep="every:10", measure="every:5", report="none")
    second.load_state_dict(state["watch"])
    second.resume(10)
    model, adam = network(), None
    model.load_state_dict(state["model"])
    loop(second, 10, 20, model, adam)
    second.close(model)
    assert [look.at for look in second.looks] == [0, 5, 10, 15, 20]
    same = [(look.test, look.d_lr) for look in second.looks[:3]]
    assert same == [(look.test, look.d_lr) for look in whole.looks[:3]]
    assert ut.open_run(tmp_path / "run").epochs == (0, 10, 20)


def test_a_folder_with_a_run_is_not_written_over(whole: Watch):
    with pytest.raises(RunProblem, match="holds a run already"):
        watched(whole.path).epoch(network(), 0)


def test_watching_changes_no_bit(tmp_path: Path):
    """Fails if a look draws from the global generator or leaves batch norm in another mode."""

    def trained(watch: Watch | None) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(), torch.nn.Linear(32, 10)
        )
        adam = torch.optim.Adam(model.parameters(), 1e-2)
        for epoch in range(1, 4):
            for x, y in loader():
                adam.zero_grad()
                cross_entropy(model(x), y).backward()
                adam.step()
            if watch is not None:
                watch.epoch(model, epoch)
        return list(model.state_dict().values())

    pairs = zip(trained(None), trained(watched(tmp_path / "run", keep="every:1")), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_without_training_samples_probes_are_fitted_on_half(tmp_path: Path):
    watch = Watch(tmp_path / "run", test=digits()[1])
    look = watch.epoch(network(), 0)
    assert look is not None
    assert look.fit is None
    assert look.latent["1"]["velpic"] > 0.5
    assert alarm([look], "epoch", 10) == ""


def test_a_fall_without_known_labels_is_warned_of():
    """The audit's second rule; fails if a rise of the fit is not asked for, or chance is enough."""

    def look(at: int, test: int, fit: int) -> Look:
        return Look(at, test=Share(test, 400), fit=Share(fit, 400))

    assert "after epoch 5" in alarm([look(5, 380, 240), look(10, 300, 390)], "epoch", 10)
    assert alarm([look(5, 380, 240), look(10, 300, 240)], "epoch", 10) == ""
    assert alarm([look(5, 380, 240), look(10, 372, 390)], "epoch", 10) == ""


@pytest.mark.parametrize("text", ["paper", "every:7", "0,3,9", "log:6"])
def test_a_schedule_is_due_when_it_says(text: str):
    schedule = CheckpointSchedule.parse(text)
    assert {at for at in range(61) if is_due(schedule, at, 60)} == schedule.moments(60)


def test_settings_are_checked():
    with pytest.raises(UnknownName, match="Did you mean 'layers'"):
        WatchConfig.of(layer="x")
    with pytest.raises(BadValue, match="epochs, as in keep"):
        WatchConfig(keep="every:5", measure="every:100steps")
    with pytest.raises(BadValue, match="without an end"):
        is_due(CheckpointSchedule.parse("log:5"), 3, float("inf"))


def test_looks_are_plain_values():
    look = Look(3, test=Share(3, 4), latent={"a": {"masc": 0.5}}, noise=(None, 0.0, 0.3), notes=("x",))
    assert Look.from_dict(look.to_dict()) == look
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert look.measures()["label_noise_high"] == 0.3


def spoil(model: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    return model


def test_a_diverged_model_is_kept_and_ends_no_training(tmp_path: Path):
    """Fails if the look comes before the save, or its error reaches the loop."""
    logged: list[tuple[int, dict[str, float]]] = []
    watch = watched(tmp_path / "run", keep="every:1", log=lambda values, at: logged.append((at, values)))
    model = network()
    watch.epoch(model, 0)
    with pytest.warns(
        UserWarning, match="look at epoch 1 diverged: NaN or infinity in .*The training goes on"
    ):
        look = watch.epoch(spoil(model), 1, loss=1.0)
    assert look is not None
    assert look.diverged
    assert look.notes[0].startswith("diverged: NaN or infinity in ")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        watch.epoch(model, 2)
    watch.close(model)
    assert [(at, values["undertow/diverged"]) for at, values in logged[1:]] == [(1, 1.0), (2, 1.0)]
    run = ut.open_run(watch.path)
    assert run.epochs == (0, 1, 2)
    assert run.metrics["loss"].tolist()[1] == 1.0
    assert watch.audit is not None
    assert watch.audit.headline.startswith("Broken: at epoch 1")


def test_what_a_look_raises_reaches_no_loop(tmp_path: Path):
    class Shy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.shy = network(), False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.shy:
                raise OSError("not today")
            return self.inner(x)

    model = Shy()
    watch = watched(tmp_path / "run", keep="every:1", layers=("inner.1",), report="none")
    watch.epoch(model, 0)
    model.shy = True
    with pytest.warns(UserWarning, match="look at epoch 1 failed: not today"):
        look = watch.epoch(model, 1)
    assert look is not None
    assert look.failed
    assert not look.diverged
    model.shy = False
    assert watch.epoch(model, 2).test is not None  # type: ignore[union-attr]
    watch.close()
    assert ut.open_run(watch.path).epochs == (0, 1, 2)


def test_a_tracker_that_raises_ends_no_training(tmp_path: Path):
    """Fails if an error of `log=` comes out of `watch.epoch`."""

    def broken(values: dict[str, float], at: int) -> None:
        raise ConnectionError("the tracker is gone")

    watch = watched(tmp_path / "run", keep="every:1", log=broken, report="none")
    with pytest.warns(UserWarning, match="log= of Watch raised ConnectionError: the tracker is gone"):
        watch.epoch(network(), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        watch.epoch(network(), 1)
    assert len(watch.looks) == 2
    watch.close()


def test_layers_that_are_not_there_are_said_before_the_first_look(tmp_path: Path):
    with pytest.raises(UnknownName, match="no layer 'nowhere'"):
        watched(tmp_path / "run", layers=("nowhere",)).epoch(network(), 0)
