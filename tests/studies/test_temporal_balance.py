"""Appendix C's two parts against finite differences and closed forms."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from undertow.errors import BadData, BadValue, UnknownName
from undertow.studies.temporal.balance import balance, with_plain_norms


def two_checkpoints(size=1e-5):
    torch.manual_seed(0)
    deep = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    before = {name: one.clone() for name, one in deep.state_dict().items()}
    after = {name: one + size * torch.randn_like(one) for name, one in before.items()}
    z = torch.randn(20, 4, dtype=torch.float64)
    return deep, z, z + size * torch.randn_like(z), before, after


@pytest.mark.parametrize("outputs", ["probabilities", "logits"])
def test_parts_are_finite_differences(outputs):
    deep, z, later, before, after = two_checkpoints()

    def answer(weights, features):
        deep.load_state_dict(weights)
        with torch.no_grad():
            found = deep(features)
        return found.softmax(1) if outputs == "probabilities" else found

    found = balance(deep, z, later, before, after, outputs=outputs)
    base = answer(before, z)
    features = answer(before, later) - base
    weights = answer(after, z) - base
    # Steps of 1e-5: what second order adds is about 1e-5 of them.
    torch.testing.assert_close(found.feature, features.norm(dim=1), rtol=1e-3, atol=1e-9)
    torch.testing.assert_close(found.parameter, weights.norm(dim=1), rtol=1e-3, atol=1e-9)
    torch.testing.assert_close(found.together, (features + weights).norm(dim=1), rtol=1e-2, atol=1e-9)
    torch.testing.assert_close(found.change, (answer(after, later) - base).norm(dim=1), rtol=1e-9, atol=1e-15)


def test_a_linear_deep_part_in_closed_form():
    deep = nn.Linear(3, 2, bias=False).double()
    generator = torch.Generator().manual_seed(0)
    w, dw = (torch.randn(2, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    z, dz = (torch.randn(5, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    found = balance(deep, z, z + dz, {"weight": w}, {"weight": w + dw}, outputs="logits", draws=4000)
    torch.testing.assert_close(found.feature, (dz @ w.T).norm(dim=1), rtol=1e-12, atol=0)
    torch.testing.assert_close(found.parameter, (z @ dw.T).norm(dim=1), rtol=1e-12, atol=0)
    # E |W r|^2 over the sphere of radius |dz| is |W|^2 |dz|^2 / D.
    expected = w.norm() * dz.norm(dim=1) / 3**0.5
    torch.testing.assert_close(found.control, expected, rtol=0.05, atol=0)


def test_drift_along_flat_directions_is_flat():
    """Only the first coordinate matters to the deep part; features move along the others."""
    deep = nn.Linear(8, 2, bias=False).double()
    weight = torch.zeros(2, 8, dtype=torch.float64)
    weight[0, 0] = 1.0
    z = torch.randn(10, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    flat, steep = torch.zeros_like(z), torch.zeros_like(z)
    flat[:, 3], steep[:, 0] = 1.0, 1.0
    same = {"weight": weight}
    assert balance(deep, z, z + flat, same, same).flatness == 0.0
    assert balance(deep, z, z + steep, same, same).flatness > 2
    nothing = {"weight": torch.zeros_like(weight)}
    assert balance(deep, z, z + flat, nothing, nothing).flatness is None


def test_batch_norm_statistics_move_with_the_weights():
    """Buffers are part of the deep part: without them `together` would miss their change."""
    deep = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)).double().eval()
    before = {name: one.clone() for name, one in deep.state_dict().items()}
    after = {name: one + 1e-6 if one.is_floating_point() else one for name, one in before.items()}
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = balance(deep, z, z, before, after)
    torch.testing.assert_close(found.parameter, found.change, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("affine", [True, False])
def test_norms_written_out_answer_as_they_did(affine):
    norm = nn.BatchNorm2d(3, affine=affine).double()
    net = nn.Sequential(nn.Conv2d(2, 3, 3), norm, nn.ReLU()).double()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 2, 6, 6, generator=generator, dtype=torch.float64) * 3 + 1
    net(x)  # fills the running statistics
    net.eval()
    torch.testing.assert_close(with_plain_norms(net)(x), net(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(with_plain_norms(norm)(net[0](x)), net[1](net[0](x)), rtol=1e-12, atol=1e-12)
    assert isinstance(net[1], nn.BatchNorm2d), "the module itself is left as it was"


def test_nonsense_is_refused():
    deep, z, later, before, after = two_checkpoints()
    with pytest.raises(BadData, match="of one shape"):
        balance(deep, z, later[:3], before, after)
    with pytest.raises(BadValue, match="draws"):
        balance(deep, z, later, before, after, draws=0)
    with pytest.raises(UnknownName, match="logits"):
        balance(deep, z, later, before, after, outputs="logit")
