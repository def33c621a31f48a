"""Which networks there are and how a short text names one, without torch.

    for name, model in MODELS.items():
        print(name, model.summary, model.takes, model.options)
    spec = parse_spec("mlp:256-256,dropout=0.2")
    spec.name, spec.options      # "mlp", {"widths": (256, 256), "init": "default", "dropout": 0.2}
    str(spec)                    # "mlp:256-256,dropout=0.2": what differs from the defaults
    parse_spec("resnet19")       # UnknownName: ... Did you mean 'resnet18' or 'resnet8' or 'resnet20'?

A text is a model's name, then after a colon its options, parted by commas: `name=value`, the bare
name of a yes-or-no option, or the bare value of the model's main option (an MLP's widths).
The command line lists models and answers typing errors from this table, so nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from undertow.errors import BadValue, unknown

Value = bool | int | float | str | tuple[int, ...]
Takes = Literal["images or vectors", "images", "tokens"]

LARGEST = 65_536
"""The largest whole number that an option takes: more is a slip of the keyboard, not a network."""


@dataclass(frozen=True)
class Option:
    """A setting of a model; the type of its default is its type."""

    name: str
    default: Value
    meaning: str
    choices: tuple[str, ...] = ()

    @property
    def wanted(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
        match self.default:
            case bool():
                return "yes or no"
            case int():
                return f"a whole number from 1 to {LARGEST}"
            case float():
                return "a share from 0 to below 1"
            case _:
                return f"whole numbers from 1 to {LARGEST} joined by '-', such as 256-256"

    def read(self, text: str, model: str) -> Value:
        """The value that `text` stands for."""
        value = self._value(text)
        if value is None:
            raise BadValue(f"{model}: {self.name}", self.wanted, text)
        return value

    def _value(self, text: str) -> Value | None:
        if self.choices:
            return text if text in self.choices else None
        match self.default:
            case bool():
                return {"yes": True, "true": True, "no": False, "false": False}.get(text.lower())
            case int():
                return _whole(text)
            case float():
                return _share(text)
            case _:
                numbers = [_whole(part) for part in text.split("-")]
                return None if None in numbers else tuple(filter(None, numbers))


@dataclass(frozen=True)
class Model:
    """A network that can be built."""

    summary: str
    takes: Takes
    options: tuple[Option, ...]
    main: str = ""  # the option whose value may stand without its name

    def option(self, name: str, model: str) -> Option:
        """The option called `name`; an unknown one is answered with its neighbours."""
        for option in self.options:
            if option.name == name:
                return option
        raise unknown(f"{model} option", name, [option.name for option in self.options])


@dataclass(frozen=True)
class ModelSpec:
    """A model's name with a value for each of its options."""

    name: str
    options: Mapping[str, Value]

    def __str__(self) -> str:
        model = MODELS[self.name]
        changed = [
            f"{'' if option.name == model.main else option.name + '='}{_text(self.options[option.name])}"
            for option in model.options
            if self.options[option.name] != option.default
        ]
        return ":".join([self.name, ",".join(changed)] if changed else [self.name])


def parse_spec(text: str) -> ModelSpec:
    """The model and the options that `text` names; what it leaves out takes the defaults."""
    name, colon, rest = text.strip().partition(":")
    name = name.strip().lower()
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    model, given = MODELS[name], dict[str, Value]()
    for item in rest.split(",") if colon else []:
        option, value = _read_item(model, name, item.strip())
        if option in given:
            raise BadValue(f"{name}: {option}", "one value", text, "Give the option once.")
        given[option] = value
    return ModelSpec(name, {option.name: option.default for option in model.options} | given)


def _read_item(model: Model, name: str, item: str) -> tuple[str, Value]:
    key, equals, text = (part.strip() for part in item.partition("="))
    if equals:
        return key, model.option(key, name).read(text, name)
    if not key.isidentifier():
        if model.main:
            return model.main, model.option(model.main, name).read(key, name)
        first = model.options[0]
        raise BadValue(
            name,
            "options written name=value",
            item,
            f"For example {name}:{first.name}={_text(first.default)}.",
        )
    option = model.option(key, name)
    if not isinstance(option.default, bool):
        raise BadValue(f"{name}: {key}", option.wanted, item, f"Write {key}={_text(option.default)}.")
    return key, True


def _whole(text: str) -> int | None:
    # int() alone also takes "1_0", " 7" and digits of other scripts.
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST))):
        return None
    return int(text) if 1 <= int(text) <= LARGEST else None


def _share(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1 else None  # NaN fails this too


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _width(default: int, meaning: str = "channels of the first stage; all others follow") -> Option:
    return Option("width", default, meaning)


def _dropout(default: float, where: str) -> Option:
    return Option("dropout", default, f"share dropped {where}")


_RESNET_CIFAR = (_width(16),)
_VGG = (
    _width(64, "channels of the first stage; all others and the fully connected layers follow"),
    _dropout(0.5, "after each fully connected layer"),
    Option("pad", 0, "pixels of 0 round the image; 2 makes 32x32 of 28x28"),
)

MODELS: Mapping[str, Model] = {
    "mlp": Model(
        "Fully connected ReLU layers of any widths",
        "images or vectors",
        (
            Option("widths", (128, 512, 2048, 2048), "units of each hidden layer"),
            Option(
                "init",
                "default",
                "weights as PyTorch draws them, N(0, 2/fan_in) (he) or N(0, 1/fan_in) (lecun); "
                "biases are 0 with he and lecun",
                ("default", "he", "lecun"),
            ),
            _dropout(0.0, "after each hidden layer"),
        ),
        main="widths",
    ),
    "mlp2d": Model(
        "MLP 100-2 whose last features lie in the plane (no ReLU after them)",
        "images or vectors",
        (_width(100, "units of the first layer"),),
    ),
    "lenet": Model(
        "Two 5x5 convolutions with pools, a fully connected layer and a head",
        "images",
        (_width(32), Option("units", 1024, "units of the fully connected layer")),
    ),
    "cnn": Model(
        "Three blocks of two 3x3 convolutions and a pool, three 250-unit layers, head without bias",
        "images",
        (
            _width(16),
            Option("units", 250, "units of each of the three fully connected layers"),
            _dropout(0.0, "after each fully connected layer"),
        ),
    ),
    "alexnet": Model(
        "AlexNet for 64x64 images: 256 features after the convolutions, then two 4096-unit layers",
        "images",
        (
            _width(64, "channels of the first stage; all others and the fully connected layers follow"),
            _dropout(0.0, "before each hidden fully connected layer"),
        ),
    ),
    "svhn-cnn": Model(
        "Convolutions 32-32-M-64-64-M-128-128-M-256-M for 32x32 images, batch norm without affine",
        "images",
        (_width(32), _dropout(0.3, "after each convolution")),
    ),
    "stl10-cnn": Model(
        "Convolutions 32-M-64-M-128-M-128-M-256-256-M for 96x96 images, batch norm without affine",
        "images",
        (_width(32), _dropout(0.0, "after each convolution")),
    ),
    "resnet8": Model("ResNet-8 for 32x32 images, parameter-free shortcuts", "images", _RESNET_CIFAR),
    "resnet20": Model("ResNet-20 for 32x32 images, parameter-free shortcuts", "images", _RESNET_CIFAR),
    "resnet18": Model(
        "ResNet-18 for 32x32 images (3x3 stem, stride 1)",
        "images",
        (
            _width(64),
            Option("pool", False, "a 3x3 max pool of stride 2 after the stem"),
            Option("preact", False, "batch norm and ReLU before each convolution instead of after"),
            Option("closed", False, "batch norm and ReLU before the average pool too; with preact"),
            _dropout(0.0, "before the head"),
        ),
    ),
    "vgg16": Model("VGG-16 for 32x32 images without batch norm", "images", _VGG),
    "vgg16bn": Model("VGG-16 for 32x32 images with batch norm", "images", _VGG),
    "transformer": Model(
        "Causal decoder on tokens that answers at the last one",
        "tokens",
        (
            Option("depth", 2, "blocks"),
            Option("width", 128, "features per token"),
            Option("heads", 4, "attention heads; they divide the width"),
        ),
    ),
    "vit": Model(
        "Small vision transformer",
        "images",
        (
            Option("patch", 4, "side of a patch in pixels; it divides the image"),
            Option("depth", 6, "blocks"),
            Option("width", 192, "features per token"),
            Option("heads", 3, "attention heads; they divide the width"),
            Option("pool", "cls", "what the head reads: a class token or the mean token", ("cls", "mean")),
            _dropout(0.0, "from each block's two updates"),
        ),
    ),
}
"""All models by name."""
