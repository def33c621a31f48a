"""Figures for papers."""

from __future__ import annotations

import pytest

from undertow.errors import BadData, UnknownName
from undertow.report import FIGURES, draw

BEGINS = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_is_drawn(audited, tmp_path, name):
    (path,) = draw(audited, name, formats=("svg",), out=tmp_path)
    assert path == tmp_path / f"{name}.svg"
    assert path.stat().st_size > 3000


def test_every_format_is_what_it_says(audited, tmp_path):
    paths = draw(audited, "swap", formats=tuple(BEGINS), out=tmp_path)
    assert [path.name for path in paths] == ["swap.png", "swap.pdf", "swap.svg"]
    for path in paths:
        assert path.read_bytes().startswith(BEGINS[path.suffix[1:]])


def test_text_stays_text_and_bytes_stay_the_same(audited, tmp_path):
    (first,) = draw(audited, "swap", formats=("svg",), out=tmp_path / "a")
    (second,) = draw(audited, "swap", formats=("svg",), out=tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    assert "early shallow, late deep" in first.read_text()


def test_figures_lie_with_the_run_unless_told(make_audit, tmp_path):
    made = make_audit(tmp_path / "run", checkpoints=3, lenses=("latent",))
    assert draw(made, "heat-map") == [made / "figures" / "heat-map.png"]


def test_misspelt_names_are_answered(audited):
    with pytest.raises(UnknownName, match=r"no figure 'heatmap'. Did you mean 'heat-map'"):
        draw(audited, "heatmap")
    with pytest.raises(UnknownName, match="no format 'jpg'"):
        draw(audited, "swap", formats=("jpg",))
    with pytest.raises(UnknownName, match=r"--format names no format. Choose some of png, pdf, svg"):
        draw(audited, "swap", formats=())


@pytest.mark.parametrize(
    "name", [name for name in FIGURES if name not in ("latent-dynamics", "richness", "spectrum")]
)
def test_rows_that_are_missing_are_named(make_audit, tmp_path, name):
    made = make_audit(tmp_path / "run", lenses=("richness",), checkpoints=3)
    with pytest.raises(BadData, match=f"nothing for the figure {name!r}"):
        draw(made, name)
    assert not (made / "figures").exists()


def test_names_with_signs_of_matplotlibs_own_language_are_drawn(make_audit, tmp_path):
    """Fails if a layer called $x_ or _hidden breaks the figure or drops from the legend."""
    made = make_audit(
        tmp_path / "run", layers=("$x_{", "_hidden"), lenses=("latent", "temporal"), checkpoints=3
    )
    for name in ("drift", "swap", "composites", "heat-map", "latent-dynamics"):
        (path,) = draw(made, name, formats=("svg",))
        assert ("x_{" if name == "latent-dynamics" else "_hidden") in path.read_text(), name
