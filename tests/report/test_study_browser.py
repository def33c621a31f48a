"""The page of studies in a real browser: quiet, readable in both themes, no wider than the window.

Skipped where playwright or chromium is missing.
"""

from __future__ import annotations

import json

import pandas as pd
import pytest
from PIL import Image

from undertow.report.study import read_studies
from undertow.report.study_page import render_studies

LONG = "a case with a long name, " * 6


def write(folder, name):
    path = folder / name / "laptop"
    path.mkdir(parents=True)
    about = {
        "format": 1, "study": name, "title": f"What {name} is about", "source": "paper 9, figure 1", "scale": "laptop",
        "seeds": 3, "task_seconds": 300, "changes": [LONG], "notes": [LONG], "failures": [LONG],
    }  # fmt: skip
    (path / "study.json").write_text(json.dumps(about))
    claims = [
        {"claim": LONG, "verdict": word, "numbers": LONG}
        for word in ("holds", "does not hold", "cannot tell")
    ]
    (path / "claims.json").write_text(json.dumps(claims))
    line = {
        "case": LONG, "measure": "accuracy", "where": "split test", "paper": 0.5, "ours": 0.45, "low": 0.4, "high": 0.5,
        "seeds": 3, "tolerance": 0.1, "within": True, "source": "table 1",
    }  # fmt: skip
    pd.DataFrame([line]).to_csv(path / "comparison.csv", index=False)
    rows = pd.DataFrame(
        {"case": "plain", "seed": [0, 1, 2], "measure": "accuracy", "value": [0.4, 0.45, 0.5]}
    )
    rows.to_parquet(path / "rows.parquet")
    Image.new("RGB", (2000, 500), "white").save(path / "figure.png")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    for name in ("latent/one", "richness/two", "temporal/three"):
        write(folder, name)
    return render_studies(read_studies(folder), folder / "report.html", "studies").as_uri()


@pytest.fixture
def visit(browser, address):
    """Opens the page; complaints and requests to anywhere fail the test."""
    complaints, contexts = [], []

    def open_page(width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(300_000)  # a browser on a busy machine
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(("file:", "data:")) else complaints.append(asked.url),
        )
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def test_links_lead_to_their_studies(visit, eventually):
    page = visit()
    targets = page.eval_on_selector_all("a[href^='#']", "all => all.map(one => one.hash.slice(1))")
    assert len(targets) >= 7
    assert all(page.evaluate("name => document.getElementById(name) !== null", name) for name in targets)
    page.click("text=temporal/three")
    here = page.locator("nav a[aria-current]")
    eventually(page, lambda: here.inner_text() == "Temporal consistency")


@pytest.mark.parametrize("width", [1920, 768, 390, 360])
def test_no_width_scrolls_sideways(visit, width):
    page = visit(width)
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width < 640:  # on a phone no column of a table is hidden either
        hidden = page.eval_on_selector_all(
            ".stack", "all => all.map(one => one.scrollWidth - one.clientWidth)"
        )
        assert hidden
        assert max(hidden) == 0


def test_verdicts_are_told_in_words_and_tables_open(visit):
    page = visit()
    words = page.locator("#latent-one-laptop .answer").all_inner_texts()
    assert words == ["Holds", "Does not hold", "Cannot tell"]
    numbers = page.locator("#latent-one-laptop details").first
    assert not numbers.locator("table").is_visible()
    numbers.locator("summary").click()
    assert numbers.locator("td.num").inner_text() == "0.45 (0.4 to 0.5)"


def test_figures_have_their_size_and_a_white_ground_in_the_dark(visit):
    page = visit(color_scheme="dark")
    assert page.eval_on_selector(".figure img", "one => one.naturalWidth") == 2000
    ground = "one => getComputedStyle(one).backgroundColor"
    assert page.eval_on_selector(".figure", ground) == "rgb(255, 255, 255)"
    assert page.eval_on_selector("body", ground) != "rgb(255, 255, 255)"
    before = page.eval_on_selector("body", ground)
    page.click("[data-theme-button]")
    assert page.eval_on_selector("body", ground) != before
