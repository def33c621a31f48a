"""How weights are drawn at the start, beside PyTorch's own way.

    draw_weights(model, gain=2.0)      # He: N(0, 2/fan_in), biases 0
    draw_weights(model, gain=1.0)      # LeCun: N(0, 1/fan_in), biases 0

Both draw from torch's CPU generator, which `build_model` seeds for the time of building.
"""

from __future__ import annotations

from torch import nn


def draw_weights(model: nn.Module, gain: float) -> None:
    """Draw each linear and convolution weight from N(0, gain / fan_in) and set their biases to 0."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            fan_in = module.weight[0].numel()
            nn.init.normal_(module.weight, std=(gain / fan_in) ** 0.5)
            zero_bias(module)


def zero_bias(module: nn.Linear | nn.Conv2d) -> None:
    """Set the bias to 0 where there is one."""
    if module.bias is not None:
        nn.init.zeros_(module.bias)
