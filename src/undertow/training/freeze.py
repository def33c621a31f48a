"""Which parameters learn: all, the last linear layer, or those behind a frozen prefix.

    freeze_up_to(model, "layer2")                # layer2 and everything before it stops learning
    freeze_all_but(model, "head")

"Before" is the order in which the model registers its modules, which is the order in which all of
undertow's models run them. Frozen batch norms also keep their statistics: `set_training` puts frozen
modules into evaluation mode.
"""

from __future__ import annotations

from torch import nn

from undertow.errors import BadValue, unknown


def find_module(model: nn.Module, name: str) -> nn.Module:
    """The submodule called `name`; an unknown name is answered with near ones."""
    modules = dict(model.named_modules())
    if name not in modules or not name:
        hint = f"`undertow layers` lists the layers of {type(model).__name__}."
        raise unknown("layer", name, [known for known in modules if known], hint)
    return modules[name]


def freeze_up_to(model: nn.Module, layer: str) -> None:
    """Stop the parameters of `layer` and of all modules before it from learning."""
    find_module(model, layer)
    modules = list(model.named_modules())
    last = max(place for place, (name, _) in enumerate(modules) if f"{name}.".startswith(f"{layer}."))
    for _, module in modules[: last + 1]:
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise BadValue(
            f"freeze {layer!r}", "a layer before the last one", "the last one", "Nothing would learn."
        )


def freeze_all_but(model: nn.Module, layer: str) -> None:
    """Let only the parameters of `layer` learn."""
    kept = find_module(model, layer)
    model.requires_grad_(False)
    kept.requires_grad_(True)


def set_training(model: nn.Module) -> None:
    """Training mode for all modules that learn, evaluation mode for those that are wholly frozen."""
    model.train()
    for module in model.modules():
        own = list(module.parameters())
        if own and not any(parameter.requires_grad for parameter in own):
            module.eval()
