"""A shorter model: the network up to a layer, with a probe as its head.

    short = make_graft(model, "layer2", probe, example=x)     # VeLPIC, MASC or logistic, fitted on that layer
    short(x)                                                  # (N, C) scores; their argmax is the probe's answer
    short.features(x)                                         # (N, D) of the layer

Where the network is a chain of blocks the graft holds the blocks up to the layer and nothing else. In any
other module a hook ends the forward pass at the layer: what lies behind is not computed, and not saved
either. MASC's head is quadratic, the squared cosines of the angles to the classes' subspaces; VeLPIC's and
the logistic probe's are linear. Maps and tokens become rows by the rules of `Tap`. On the example the graft
must give the features that a tap sees there, else it is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from undertow.errors import BadValue
from undertow.features.head import layer_called
from undertow.features.layers import resolve_layers, unwrap
from undertow.features.stopping import run_until
from undertow.features.tap import ConvRule, Inputs, Tap, TokenRule, call, device_of, main_tensor, to_device
from undertow.latent.arrays import as_tensor
from undertow.latent.masc import MASC
from undertow.latent.probe import Probe
from undertow.repairing.transfer import linear_parts


class Graft(nn.Module):
    """A body that ends at a layer, and a head on it; called as the model was, it answers with scores (N, C)."""

    conv: ConvRule
    tokens: TokenRule

    def __init__(
        self,
        body: nn.Module,
        head: nn.Module,
        *,
        layer: str,
        entering: bool = False,
        conv: ConvRule = "flatten",
        tokens: TokenRule = "mean",
    ) -> None:
        super().__init__()
        self.body, self.head = body, head
        self.layer, self.entering, self.conv, self.tokens = layer, entering, conv, tokens
        self.example: Inputs | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Scores of the classes (N, C)."""
        rows = self.features(*args, **kwargs)
        # Half precision is enough for a body, not for a probe.
        return self.head(rows.to(next(iter(self.head.state_dict().values())).dtype))

    def features(self, *args: Any, **kwargs: Any) -> Tensor:
        """What the head sees (N, D)."""
        found = main_tensor(self.body(*args, **kwargs), self.layer)
        return _rows(found, kwargs.get("attention_mask"), self.conv, self.tokens)

    def extra_repr(self) -> str:
        """Where it was cut."""
        return f"layer={self.layer!r}"


class Stopped(nn.Module):
    """A model whose forward pass ends at one of its layers: with its output, or with what enters it."""

    def __init__(self, model: nn.Module, layer: str, *, entering: bool = False) -> None:
        super().__init__()
        self.model, self.layer, self.entering = model, layer, entering
        # In a list, so that it is no second name for a part of the model, and is copied along with it.
        self._target = [layer_called(model, layer)]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer gives, or gets."""
        # An exported graph runs on, and drops what nobody uses.
        found, _ = run_until(
            lambda: self.model(*args, **kwargs),
            {self.layer: self._target[0]},
            entering=self.entering,
            go_on=torch.compiler.is_compiling(),
        )
        return found[self.layer]


class SubspaceHead(nn.Module):
    """MASC as a layer: squared cosines of the angles to the classes' subspaces, times `scale`."""

    basis: Tensor
    scale: Tensor

    def __init__(self, dim: int, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes
        self.register_buffer("basis", torch.zeros(dim, sum(sizes)))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, rows: Tensor) -> Tensor:
        """Scores (N, C) of rows (N, D); a row of zeros scores 0 everywhere."""
        inside = (rows @ self.basis).split(self.sizes, 1)
        lengths = torch.stack([torch.linalg.vector_norm(part, dim=1) for part in inside], 1)
        whole = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        return (lengths / torch.where(whole > 0, whole, 1)).square() * self.scale


def make_graft(
    model: nn.Module,
    layer: str,
    probe: Probe,
    *,
    example: Inputs,
    entering: bool = False,
    conv: ConvRule = "flatten",
    tokens: TokenRule = "mean",
) -> Graft:
    """The model up to `layer` with `probe` as its head; the model itself is copied, not changed.

    Args:
        model: any module.
        layer: where the probe was fitted.
        probe: a fitted VeLPIC, MASC or LogisticProbe.
        example: a few inputs, on which the graft is checked.
        entering: whether the probe was fitted on what enters `layer` instead of what it gives.
        conv: see `Tap`; as for the probe's features.
        tokens: see `Tap`.
    """
    name = single_layer(model, layer) if layer else ""
    body = cut_body(deepcopy(unwrap(model)), name, entering=entering)
    device = device_of(model)
    made = Graft(body, nn.Identity(), layer=name, entering=entering, conv=conv, tokens=tokens).eval()
    made.example = to_device(example, device)
    with torch.no_grad():
        rows: Tensor = call(_Features(made), made.example)
    made.head = _head(probe, torch.promote_types(rows.dtype, torch.float32)).to(device).eval()
    if not entering:
        _check_features(model, made, name)
    return made


def cut_body(model: nn.Module, layer: str, *, entering: bool = False) -> nn.Module:
    """`model` up to `layer`: the blocks of a chain, else the whole with a hook that ends the pass."""
    blocks = dict(model.named_children())
    plain = isinstance(model, nn.Sequential) and type(model).forward is nn.Sequential.forward
    if not (plain and layer in blocks):
        return Stopped(model, layer, entering=entering)
    names = list(blocks)
    kept = names[: names.index(layer) + (not entering)]
    return nn.Sequential(OrderedDict((name, blocks[name]) for name in kept))


def fold_temperature(head: nn.Module, temperature: float) -> None:
    """Divide the scores of `head` by `temperature`, in its weights."""
    with torch.no_grad():
        if isinstance(head, SubspaceHead):
            head.scale /= temperature
        else:
            for parameter in head.parameters():
                parameter /= temperature


def _head(probe: Probe, dtype: torch.dtype) -> nn.Module:
    if isinstance(probe, MASC):
        made = SubspaceHead(probe.n_features_in_, tuple(torch.as_tensor(probe.dimensions_).tolist())).to(
            dtype
        )
        made.basis.copy_(as_tensor(probe.basis_))
        return made
    weight, bias = linear_parts(probe)
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=dtype)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    return linear


def single_layer(model: nn.Module, layer: str) -> str:
    """The one layer that `layer` names; patterns may mean more, and the input is none."""
    names = resolve_layers(model, layer)
    if len(names) != 1 or names[0] == "input":
        raise BadValue("graft", "one layer of the model", layer, f"It means {', '.join(names)}.")
    return names[0]


@torch.no_grad()
def _check_features(model: nn.Module, made: Graft, layer: str) -> None:
    assert made.example is not None
    with Tap(model, layer, conv=made.conv, tokens=made.tokens) as tap:
        _, wanted = tap(made.example)
    found = call(_Features(made), made.example)
    if found.shape != wanted[layer].shape or not torch.allclose(found, wanted[layer], rtol=1e-4, atol=1e-6):
        raise BadValue(
            "Graft",
            "a layer that runs once in a pass, samples first",
            layer,
            "Its features cannot be had by stopping there: choose a layer around it.",
        )


class _Features(nn.Module):
    """A graft without its head."""

    def __init__(self, graft: Graft) -> None:
        super().__init__()
        self.graft = graft

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.graft.features(*args, **kwargs)


def _rows(found: Tensor, mask: Any, conv: ConvRule, tokens: TokenRule) -> Tensor:
    """An activation as rows (N, D), by the rules of `Tap`, in operations that can be exported."""
    if found.ndim == 3 and tokens != "flatten":
        return _token_rows(found, mask, tokens)
    if found.ndim > 3 and conv != "flatten":
        maps = found.flatten(2)
        return maps.mean(2) if conv == "mean" else maps.amax(2)
    return found.flatten(1) if found.ndim > 1 else found[:, None]


def _token_rows(found: Tensor, mask: Any, tokens: TokenRule) -> Tensor:
    if tokens == "first":
        return found[:, 0]
    if not isinstance(mask, Tensor) or mask.shape != found.shape[:2]:
        return found.mean(1) if tokens == "mean" else found[:, -1]
    kept = mask != 0  # (N, L)
    if tokens == "mean":
        return found.masked_fill(~kept[..., None], 0).sum(1) / kept.sum(1, keepdim=True).to(found.dtype)
    last = kept.shape[1] - 1 - kept.flip(1).int().argmax(1)
    return found[torch.arange(len(found), device=found.device), last]
