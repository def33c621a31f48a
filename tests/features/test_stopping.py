"""Passes that are stopped or changed at a layer: what comes out, what runs, and what stays behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from undertow.errors import BadValue
from undertow.features.stopping import evaluating, hooked, run_until


class Net(nn.Module):
    """Two layers, of which the first is called twice where it is told so; counts its calls of the second."""

    def __init__(self, repeats=1):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)
        self.unused, self.repeats, self.ended = nn.Linear(4, 4), repeats, 0

    def forward(self, x):
        for _ in range(self.repeats):
            x = self.first(x)
        out = self.last(self.act(x))
        self.ended += 1
        return out


def made(**options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net(**options).double(), torch.randn(5, 4, dtype=torch.float64)


def layers(net, *names):
    return {name: net.get_submodule(name) for name in names}


def no_hooks(net):
    return not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())


def test_the_pass_ends_at_the_last_of_the_layers():
    net, x = made()
    found, whole = run_until(lambda: net(x), layers(net, "first", "act"))
    plain = x @ net.first.weight.T + net.first.bias
    torch.testing.assert_close(
        found["first"], plain, rtol=1e-12, atol=0
    )  # fails if the ReLU in place changed it
    torch.testing.assert_close(found["act"], plain.clamp(min=0), rtol=1e-12, atol=0)
    assert (whole, net.ended) == (None, 0)
    assert no_hooks(net)


def test_going_on_gives_the_answer_and_copies():
    net, x = made()
    found, whole = run_until(lambda: net(x), layers(net, "first"), go_on=True)
    assert torch.equal(whole, net(x))
    assert (found["first"] < 0).any()
    assert net.ended == 2


def test_gradients_flow_and_the_first_call_counts():
    net, x = made(repeats=2)
    found, _ = run_until(lambda: net(x), layers(net, "first"))
    found["first"].sum().backward()
    torch.testing.assert_close(net.first.weight.grad, x.sum(0).expand(4, 4), rtol=1e-12, atol=0)


def test_what_enters_a_layer():
    net, x = made()
    found, whole = run_until(lambda: net(x=x), layers(net, "last"), entering=True)
    assert torch.equal(found["last"], net.first(x).clamp(min=0))
    assert (whole, net.ended) == (None, 0)
    assert no_hooks(net)


@pytest.mark.parametrize("entering", [False, True])
def test_a_layer_that_never_runs_is_named(entering):
    net, x = made()
    with pytest.raises(BadValue, match=r"a layer that the forward pass calls.*unused"):
        run_until(lambda: net(x), layers(net, "first", "unused"), entering=entering)
    assert no_hooks(net)


def test_a_models_own_except_does_not_catch_the_stop():
    net, x = made()

    def careful():
        try:
            return net(x)
        except Exception:  # as some models do around their parts
            return None

    assert torch.equal(run_until(careful, layers(net, "first"))[0]["first"], net.first(x))


def test_an_output_is_replaced_inside_the_block_only():
    net, x = made()
    other, seen = torch.ones(5, 4, dtype=torch.float64), []
    with hooked(
        layers(net, "act", "last"),
        lambda name, args, output: seen.append(name) or (other if name == "act" else None),
    ):
        changed = net(x)
    torch.testing.assert_close(changed, net.last(other))
    assert seen == ["act", "last"]
    assert not torch.equal(net(x), changed)


def test_hooks_are_gone_after_an_error_and_modes_come_back():
    net, x = made()
    net.act.training = False  # a mode of its own
    modes = [part.training for part in net.modules()]
    with evaluating(net), hooked(layers(net, "first"), lambda *_: None):
        assert not any(part.training for part in net.modules())
        with pytest.raises(RuntimeError):
            run_until(lambda: net(x[:, :3]), layers(net, "last"))
    assert [part.training for part in net.modules()] == modes
    assert no_hooks(net)
