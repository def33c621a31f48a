"""Weights that the given model lacks: refused where a network computes with them, else told in the notes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.errors import RunProblem


class Net(nn.Module):
    """Two layers, with the names that people give them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.fc1(x.flatten(1)).relu())


def own() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return Net().state_dict()


def under(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in module.state_dict().items()}


def run_of(folder: Path, extra: dict[str, Tensor], prefix: str = "") -> ut.Run:
    """A run whose checkpoints hold more than the model has."""
    weights = {f"{prefix}{name}": value for name, value in own().items()}
    for epoch in (1, 2):
        torch.save({**weights, **extra}, folder / f"epoch_{epoch}.pt")
    return ut.open_run(folder, model=Net)


NETWORKS = {
    "a matrix": under("skip", nn.Linear(6, 3)),
    "a kernel": {"stem.weight": torch.ones(2, 1, 3, 3)},
    "a vector": {"shift.bias": torch.ones(3)},
    "batch norm": under("norm", nn.BatchNorm1d(5)),
    "half a copy": {"other.fc1.weight": torch.ones(5, 6)},
    "a copy of other sizes": {
        f"other.{name}": torch.cat([value, value]) for name, value in own().items()
    },
    "in double precision": {"skip.weight": torch.ones(3, 6, dtype=torch.float64)},
}  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_with_less_than_was_trained_is_refused(tmp_path: Path, name: str, prefix: str):
    """Fails if another network than the trained one is judged in silence."""
    extra = {f"{prefix}{one}": value for one, value in NETWORKS[name].items()}
    run = run_of(tmp_path, extra, prefix)
    first = next(iter(NETWORKS[name])).partition(".")[0]
    with pytest.raises(
        RunProblem, match=rf"epoch_2\.pt: wanted a model with all .* without .*{first}.* Give the"
    ) as told:
        run.model(2)
    assert len(str(told.value)) < 400
    assert run.notes == ()


def test_layers_after_the_last_of_a_sequence_are_no_extras(tmp_path: Path):
    """Fails if the first half of a network is judged instead of the whole."""
    whole = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    torch.save(whole.state_dict(), tmp_path / "epoch_1.pt")
    with pytest.raises(RunProblem, match=r"without 2\.weight, 2\.bias\. Give"):
        ut.open_run(tmp_path, model=lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU())).model(1)


BESIDE = {
    "a loss's weights of classes": {"criterion.weight": torch.ones(3)},
    "a metric's counts": {"accuracy.counts": torch.ones(3, 3).long(), "accuracy.total": torch.tensor(3.0)},
    "a teacher": under("teacher", Net()),
    "an average": {**under("ema.module", Net()), "ema.n_averaged": torch.tensor(4)},
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_no_layer_opens_with_a_note(tmp_path: Path, name: str):
    """Fails if it is passed over in silence."""
    run = run_of(tmp_path, BESIDE[name])
    model = run.model(2).state_dict()
    assert all(torch.equal(model[one], value) for one, value in own().items())
    (note,) = run.notes
    assert note.startswith(f"Passed over in the checkpoints: {next(iter(BESIDE[name]))}")
    assert note.endswith("(the model has no such part).")


def test_what_lies_beside_the_model_in_a_surrounding_module_is_told(tmp_path: Path):
    """A Lightning module's model, with the teacher's other network and the loss's matrix beside it."""
    extra = under("teacher", nn.Linear(6, 3)) | {"loss.centres": torch.ones(3, 5)}
    run = run_of(tmp_path, extra, "model.")
    assert torch.equal(run.model(1).state_dict()["fc1.weight"], own()["fc1.weight"])
    assert run.notes == (
        "Passed over in the checkpoints: teacher.weight, teacher.bias, loss.centres (the model has no such part).",
    )


def test_notes_take_no_number_from_the_users_generator(tmp_path: Path):
    run = run_of(tmp_path, {})
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    assert run.notes == ()
    assert torch.equal(torch.rand(4), wanted)


def test_the_audit_has_the_note(tmp_path: Path):
    run = run_of(tmp_path, BESIDE["a loss's weights of classes"])
    x, y = torch.randn(60, 6), torch.arange(60) % 3
    found = ut.audit(run, (x[:40], y[:40]), (x[40:], y[40:]), lenses=["richness"], progress=False)
    assert any("Passed over in the checkpoints: criterion.weight" in note for note in found.notes)
