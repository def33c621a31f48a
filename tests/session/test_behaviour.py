"""What is kept belongs to a model's code as much as to its weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.session import Session

EPOCHS = (0, 3)


def clipped(x: Tensor) -> Tensor:
    return x.clamp(-50, 50)


class Net(nn.Module):
    """Two layers; classes below have the same weights in other code."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Linear(6, 12)
        self.layer2 = nn.Linear(12, 12)
        self.head = nn.Linear(12, 3)

    def bent(self, x: Tensor) -> Tensor:
        return x.relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.bent(self.layer2(self.bent(self.layer1(x)))))


class Tanh(Net):
    def bent(self, x: Tensor) -> Tensor:
        return x.tanh()


class Clipped(Net):
    """The same answers for samples that are not extreme."""

    def bent(self, x: Tensor) -> Tensor:
        return clipped(x.relu())


class Drawing(Net):
    """Draws numbers whenever it is called, from outside of torch, too."""

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.empty(len(x), 1).uniform_(generator=DRAWN)
        return super().forward(x) + 0.01 * noise + 0.01 * torch.rand(len(x), 1)


class Named(Net):
    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return super().forward(first + second)


class Raising(Net):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("not today")


DRAWN = torch.Generator()


def samples(seed: int, count: int = 90) -> tuple[Tensor, Tensor]:
    labels = torch.arange(count) % 3
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    x[torch.arange(count), labels] += 2
    return x, labels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run whose model undertow does not build."""
    x, y = samples(0)
    with torch.random.fork_rng(devices=[]), ut.Recorder(tmp_path / "run") as recorder:
        torch.manual_seed(0)
        model = Net()
        optimiser = torch.optim.Adam(model.parameters(), 0.02)
        for epoch in range(EPOCHS[-1] + 1):
            if epoch in EPOCHS:
                recorder.save(model, epoch)
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()
            optimiser.zero_grad()
    return tmp_path / "run"


def mark(folder: Path, model: type[nn.Module] | nn.Module, **settings) -> str:
    return Session(ut.open_run(folder, model=model), samples(0), samples(1), **settings).mark(EPOCHS[-1])


def test_values_of_other_code_are_not_taken(folder: Path):
    """Fails if the cache knows weights alone: an audit after a mended forward gave the numbers of before."""
    data = {"train": samples(0), "test": samples(1)}

    def measured(model: type[nn.Module], out: Path | None = None) -> dict[str, float]:
        return ut.audit(ut.open_run(folder, model=model), **data, out=out).measures

    first, second = measured(Net), measured(Tanh)
    assert second == measured(Tanh, folder.parent / "tanh")
    assert first != second
    assert measured(Net) == measured(Net, folder.parent / "relu")
    grids = [
        ut.probe_grid(ut.open_run(folder, model=model), **data, out=out, probes="mean")
        for model, out in ((Net, None), (Tanh, None), (Tanh, folder.parent / "tanh"))
    ]
    assert not grids[0]["value"].equals(grids[1]["value"])
    assert grids[1]["value"].equals(grids[2]["value"])


def test_the_same_code_is_the_same_in_each_session(folder: Path):
    """Fails if a model that is handed over untrained and unseeded, or other settings, made another mark."""
    before = torch.get_num_threads()
    found = {mark(folder, Net), mark(folder, Net()), mark(folder, Net())}
    found |= {mark(folder, Net, checkpoints=chosen) for chosen in ("last", "0,3")}
    assert len(found) == 1
    assert torch.get_num_threads() == before


def test_wrapped_models_behave_as_what_they_wrap():
    net = Net()
    wrapped = (net, torch.compile(net, backend="eager"), nn.DataParallel(net))
    assert len({Session(one, test=samples(1)).behaviour for one in wrapped}) == 1


def test_code_that_few_samples_do_not_show_is_other_code(folder: Path):
    assert mark(folder, Clipped) != mark(folder, Net)


def test_a_function_that_the_model_calls_counts_by_what_it_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Fails if the code of the classes alone is looked at."""
    before = mark(folder, Clipped)
    monkeypatch.setitem(globals(), "clipped", lambda x: x / 2)
    assert mark(folder, Clipped) != before


def test_a_model_that_draws_numbers_finds_what_it_kept(folder: Path):
    """Fails if what differs from call to call is part of the mark, or if the generator of others is moved."""
    state = torch.get_rng_state()
    marks = set()
    for seed in (1, 2):
        DRAWN.manual_seed(seed)
        marks.add(mark(folder, Drawing))
    assert len(marks) == 1
    assert torch.equal(torch.get_rng_state(), state)


def test_models_with_inputs_by_name_have_a_mark(folder: Path):
    (x, y), (held, labels) = samples(0), samples(1)

    def named(model: type[nn.Module]) -> str:
        given = ({"first": x, "second": x}, y), ({"first": held, "second": held}, labels)
        return Session(ut.open_run(folder, model=model), *given).mark(EPOCHS[-1])

    class Other(Named):
        def bent(self, x: Tensor) -> Tensor:
            return x.sigmoid()

    assert named(Named) == named(Named) != named(Other)


def test_a_model_that_raises_has_a_mark_and_says_so_later(folder: Path):
    assert mark(folder, Raising) != mark(folder, Net)
    with pytest.raises(ut.UndertowError, match="not today"):
        ut.audit(ut.open_run(folder, model=Raising), samples(0), samples(1))


def test_a_first_checkpoint_that_cannot_be_read_hides_no_other(folder: Path):
    (folder / "checkpoints" / "epoch-000000.safetensors").write_bytes(b"torn")
    assert mark(folder, Net, checkpoints="last") != mark(folder, Tanh, checkpoints="last")
