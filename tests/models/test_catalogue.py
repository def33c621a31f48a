"""The table of models: reading short texts, answering slips, staying free of torch."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from undertow.errors import BadValue, UndertowError, UnknownName
from undertow.models import MODELS, ModelSpec, parse_spec
from undertow.models.catalogue import LARGEST, Option


def options(text: str) -> dict[str, object]:
    return dict(parse_spec(text).options)


def test_the_issue_s_own_examples():
    assert options("mlp") == {"widths": (128, 512, 2048, 2048), "init": "default", "dropout": 0.0}
    assert options("mlp:128-512-2048-2048") == options("mlp")
    assert options("mlp:1024-1024-1024,init=lecun") == {
        "widths": (1024, 1024, 1024),
        "init": "lecun",
        "dropout": 0.0,
    }
    assert options("mlp:256-256,dropout=0.2")["dropout"] == 0.2
    assert options("resnet18:width=16")["width"] == 16


def test_one_width_is_still_a_row_of_widths():
    """Catches a lone width read as an int, which the builder could not walk over."""
    assert options("mlp:64")["widths"] == (64,)


@pytest.mark.parametrize("text", ["resnet18:pool", "resnet18:pool=yes", "ResNet18 : pool=True"])
def test_a_yes_or_no_option_may_stand_bare(text: str):
    assert options(text)["pool"] is True


def test_blanks_and_capitals_do_not_matter():
    assert parse_spec("  MLP: 64-32 , dropout = 0.5 ") == parse_spec("mlp:64-32,dropout=0.5")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("resnet19", "There is no model 'resnet19'. Did you mean 'resnet18' or 'resnet8' or 'resnet20'?"),
        ("mpl", "Did you mean 'mlp'"),
        ("", "There is no model ''. Known: alexnet, cnn"),
        ("mlp:drpout=0.2", "There is no mlp option 'drpout'. Did you mean 'dropout'?"),
        ("resnet18:pol", "There is no resnet18 option 'pol'. Did you mean 'pool'?"),
        ("cnn:=3", "There is no cnn option ''."),
    ],
)
def test_unknown_names_are_answered_with_near_ones(text: str, answer: str):
    with pytest.raises(UnknownName) as error:
        parse_spec(text)
    assert answer in str(error.value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (
            "mlp:256-",
            "mlp: widths: wanted whole numbers from 1 to 65536 joined by '-', such as 256-256, got '256-'.",
        ),
        ("mlp:0", "mlp: widths: wanted whole numbers"),
        ("mlp:12_8", "got '12_8'."),
        ("mlp:١٢", "mlp: widths"),
        ("mlp:", "got ''."),
        ("mlp:64,", "got ''."),
        ("mlp:64,32", "mlp: widths: wanted one value, got 'mlp:64,32'. Give the option once."),
        ("mlp:init=xavier", "mlp: init: wanted default, he or lecun, got 'xavier'."),
        ("mlp:dropout=1", "mlp: dropout: wanted a share from 0 to below 1, got '1'."),
        ("mlp:dropout=nan", "mlp: dropout: wanted a share from 0 to below 1, got 'nan'."),
        ("mlp:dropout=-0.1", "got '-0.1'."),
        ("mlp:dropout=half", "got 'half'."),
        ("resnet18:width=1e3", "resnet18: width: wanted a whole number from 1 to 65536, got '1e3'."),
        ("resnet18:width=65537", "got '65537'."),
        ("resnet18:width=" + "9" * 5000, "resnet18: width: wanted a whole number"),
        ("resnet18:pool=maybe", "resnet18: pool: wanted yes or no, got 'maybe'."),
        (
            "resnet18:16",
            "resnet18: wanted options written name=value, got '16'. For example resnet18:width=64.",
        ),
        (
            "resnet18:width",
            "resnet18: width: wanted a whole number from 1 to 65536, got 'width'. Write width=64.",
        ),
        ("vit:pool=max", "vit: pool: wanted cls or mean, got 'max'."),
    ],
)
def test_bad_values_are_answered_in_one_sentence(text: str, answer: str):
    with pytest.raises(BadValue) as error:
        parse_spec(text)
    assert answer in str(error.value)


def values(option: Option) -> st.SearchStrategy[object]:
    if option.choices:
        return st.sampled_from(option.choices)
    sizes = st.integers(1, LARGEST)
    return {
        bool: st.booleans(),
        int: sizes,
        float: st.floats(0, 1, exclude_max=True),
        tuple: st.lists(sizes, min_size=1, max_size=5).map(tuple),
    }[type(option.default)]


@given(st.data())
def test_a_spec_survives_being_written_and_read(data: st.DataObject):
    """Catches an option that is dropped, or written in a form that cannot be read (1e-5, yes)."""
    name = data.draw(st.sampled_from(sorted(MODELS)))
    spec = ModelSpec(name, {option.name: data.draw(values(option)) for option in MODELS[name].options})
    assert parse_spec(str(spec)) == spec


@given(st.text(alphabet="mlpcnvit:=,-0159. _xé", max_size=20))
def test_any_text_is_read_or_refused_politely(text: str):
    """Any exception but ours would reach the user as a traceback."""
    with contextlib.suppress(UndertowError):
        parse_spec(text)


def test_defaults_write_themselves_as_the_bare_name():
    assert [str(parse_spec(name)) for name in MODELS] == list(MODELS)


def test_the_table_and_the_builders_agree():
    """Catches a model or an option that is listed but cannot be built, or the other way round."""
    from undertow.models.build import BUILDERS

    assert set(BUILDERS) == set(MODELS)
    for name, builder in BUILDERS.items():
        taken = [
            each for each in inspect.signature(builder).parameters if each not in ("ends", "repeats", "norm")
        ]
        assert taken == [option.name for option in MODELS[name].options], name


def imported_after(code: str) -> bool:
    seen = "import sys; print('torch' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; {seen}"], capture_output=True, text=True, check=True
    )
    return run.stdout.strip() == "True"


def test_listing_and_reading_need_no_torch():
    code = "import undertow.models as m; m.parse_spec('mlp:8'); list(m.MODELS); dir(m)"
    assert not imported_after(code)


def test_that_guard_can_fail():
    assert imported_after("import undertow.models as m; m.build_model")


def test_an_unknown_attribute_is_an_attribute_error():
    import undertow.models

    with pytest.raises(AttributeError, match="biuld_model"):
        undertow.models.biuld_model  # noqa: B018
    assert set(undertow.models.__all__) == set(dir(undertow.models))
    assert all(getattr(undertow.models, name) is not None for name in undertow.models.__all__)
