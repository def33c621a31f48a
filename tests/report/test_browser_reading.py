"""What a newcomer stumbled over on the page, in a real browser: each test fails for the fault that it names.

Skipped where playwright or chromium is missing.
"""

from __future__ import annotations

import re
import threading

import pandas as pd
import pytest

from undertow.report import write_report
from undertow.report.server import make_server

pytestmark = pytest.mark.usefixtures("no_complaints")

PHONE = {"width": 390, "has_touch": True, "is_mobile": True}


@pytest.fixture
def page(visit, report):
    return visit(report, color_scheme="light")


@pytest.fixture
def phone(visit, report):
    return visit(report, **PHONE)


def box(page, selector):
    return page.locator(selector).first.bounding_box()


def centred(page, chart):
    """The chart's host, in the middle of a window that has come to rest: scrolling hides the tip."""
    host = page.locator(f"[data-chart={chart}] .host")
    host.evaluate("one => one.scrollIntoView({ block: 'center', behavior: 'instant' })")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return host


def apart(one, other):
    """Whether two boxes do not overlap."""
    return (
        one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
        or one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
    )  # fmt: skip


def test_a_chart_without_numbers_is_hidden_and_comes_back(page):
    """Only MASC has dimensions: the card of another probe would be empty."""
    card = page.locator("[data-chart=dimension]")
    assert card.is_visible()
    page.select_option("[data-control=map-probe]", "VeLPIC")
    assert card.is_hidden()
    page.select_option("[data-control=map-probe]", "MASC")
    assert card.locator(".line").count() == 4


def test_a_hidden_chart_is_drawn_when_it_comes_back_wider(page):
    page.select_option("[data-control=map-probe]", "VeLPIC")
    page.set_viewport_size({"width": 700, "height": 900})
    page.select_option("[data-control=map-probe]", "MASC")
    width = float(page.locator("[data-chart=dimension] svg").last.get_attribute("width"))
    assert width == pytest.approx(box(page, "[data-chart=dimension] .host")["width"], abs=2)


def test_suspects_show_what_orders_them_and_the_truth(page, audited):
    """The worst of each given class, then the second of each; the proposal's confidence is another number."""
    stored = pd.read_parquet(audited / "suspects.parquet").sort_values(
        "score", ascending=False, ignore_index=True
    )
    stored = stored.head(120).assign(turn=lambda rows: rows.groupby("given").cumcount())
    stored = stored.sort_values("turn", kind="stable").head(24)
    tiles = page.locator("#labels .suspect").all_inner_texts()
    for text, row in zip(tiles, stored.to_dict("records"), strict=True):
        assert f"wrong: {100 * row['score']:.1f}\u00a0%" in text
        shown = float(re.search(r"proposal: ([\d.]+)", text)[1])
        assert shown == pytest.approx(100 * row["confidence"], abs=0.0501)  # stored in float32
        assert f"true: {row['true']}\u00a0{'✓' if row['true'] == row['proposed'] else '✗'}" in text
    assert page.locator("#labels .truth.off").count() == int((stored["true"] != stored["proposed"]).sum())


def test_a_belief_that_is_nearly_sure_is_not_rounded_to_sure(visit, make_audit, tmp_path):
    made = make_audit(tmp_path / "run", lenses=(), checkpoints=3, suspects=True)
    page = visit(write_report([made], tmp_path / "r.html").as_uri())
    assert page.locator("#labels .suspect .score").first.inner_text() == "wrong: >\u00a099.9\u00a0%"


def reach(page):
    """How much of the chart's height and width the points of the moment take."""
    return page.evaluate("""() => {
      const host = document.querySelector('[data-chart=trajectory] .host svg').getBoundingClientRect();
      const points = [...document.querySelectorAll('[data-chart=trajectory] .point')];
      const all = points.map((one) => one.getBoundingClientRect());
      const span = (low, high) => Math.max(...all.map((one) => one[high])) - Math.min(...all.map((one) => one[low]));
      return Math.max(span('left', 'right') / host.width, span('top', 'bottom') / host.height);
    }""")


def test_points_fill_the_chart_at_every_moment(page):
    """Axes that fit all epochs squeeze the first ones into a corner; a button still gives one scale for all."""
    page.locator("[data-control=trajectory]").fill("0")
    fitted = reach(page)
    button = page.locator("[data-chart=trajectory] button.scale")
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    assert fitted > 0.85
    assert reach(page) < 0.5
    lengths = page.locator("[data-chart=trajectory] .ruler").get_attribute("d")
    assert re.search(r"h\d{2,}", lengths)  # a ruler says how long a round number is


def test_trails_can_be_seen_in_light_and_dark(page):
    """A third of a colour on white is nearly white."""
    for scheme in ("light", "dark"):
        page.evaluate(f"document.documentElement.dataset.theme = '{scheme}'")
        trail = page.locator("[data-chart=trajectory] .tails path:not(.older)").first
        assert float(trail.evaluate("one => getComputedStyle(one).opacity")) >= 0.5


def test_reference_lines_are_named_in_the_legend_not_upon_the_bars(phone):
    """Names within the plot were struck through by error bars and dashes."""
    names = phone.locator("[data-chart=swap] .chip").all_inner_texts()
    assert names[-2:] == ["early model", "late model"]
    assert "model" not in phone.locator("[data-chart=swap] svg").last.text_content()
    assert phone.locator("[data-chart=swap] .ref").count() == 2
    phone.locator("[data-chart=swap] .chip", has_text="early model").tap()
    assert phone.locator("[data-chart=swap] .ref").count() == 1


def test_the_copy_button_covers_nothing(phone, page):
    for own in (phone, page):
        assert apart(box(own, ".command button"), box(own, ".command code"))


def test_differences_are_clipped_as_accuracies_are(page):
    """One column far from all others took nearly all colours."""
    page.select_option("[data-control=map-minus]", "model")
    ticks = page.locator("[data-chart=map] svg text.tick").all_text_contents()
    assert any(text.startswith(("≥ ", "≤ ")) for text in ticks), ticks


def test_the_tip_is_small_beside_its_chart(page):
    centred(page, "accuracy").focus()
    page.keyboard.press("ArrowLeft")
    tip, host = box(page, ".tip"), box(page, "[data-chart=accuracy] .host")
    assert page.locator(".tip-row").count() == 7
    assert tip["width"] * tip["height"] < 0.25 * host["width"] * host["height"]


def test_on_a_phone_the_tip_stands_beside_its_chart_and_stays(phone):
    centred(phone, "accuracy").tap(position={"x": 200, "y": 150})
    assert phone.locator(".tip").is_visible()
    assert apart(box(phone, ".tip"), box(phone, "[data-chart=accuracy] .host svg"))


def test_no_band_is_left_between_legend_and_plot(page):
    """The shorter of two cards in a row left its chart at the bottom."""
    for chart, above in {"accuracy": ".legend", "depth": ".legend", "rich-trace_within": ".note"}.items():
        upper, plot = (box(page, f"[data-chart={chart}] {part}") for part in (above, ".host > svg"))
        assert plot["y"] - upper["y"] - upper["height"] < 20, chart


def test_no_chart_bears_the_name_of_its_section(page):
    titles = page.locator("section h2").all_inner_texts()
    assert not set(titles) & set(page.locator(".card h3").all_inner_texts())


def test_the_control_with_shuffled_labels_is_explained(page):
    note = page.locator("[data-chart=map] .note")
    assert "shuffle" not in note.inner_text()
    kinds = page.locator("[data-control=map-kind] option").all_inner_texts()
    page.select_option("[data-control=map-kind]", next(kind for kind in kinds if "shuffled" in kind))
    assert "scatter around chance by more than their interval" in note.inner_text()


def test_sliders_are_read_alike(page):
    said = page.eval_on_selector_all(
        "input[type=range]", "all => all.map(one => one.getAttribute('aria-valuetext'))"
    )
    assert said == ["Epoch 32"] * 3


def test_buttons_fit_a_thumb(phone):
    wanted = {".tool": 36, ".chip": 32, "button.all": 36, ".command button": 36, "summary": 36}
    for selector, least in wanted.items():
        heights = phone.eval_on_selector_all(
            selector, "all => all.map(one => one.getBoundingClientRect().height)"
        )
        assert min(height for height in heights if height) >= least, selector


def test_the_norm_is_drawn_and_not_its_square(visit, make_audit, tmp_path):
    made = make_audit(tmp_path / "run", lenses=("richness",), checkpoints=3)
    rows = pd.read_parquet(made / "audit.parquet")
    rows.loc[rows["measure"] == "squared_parameter_norm", "value"] = [100.0, 144.0, 400.0]
    rows.to_parquet(made / "audit.parquet")
    page = visit(write_report([made], tmp_path / "r.html").as_uri())
    page.locator("[data-chart=rich-squared_parameter_norm] .host").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(".tip-row b").inner_text() == "12"
    assert (
        "root of their summed squares"
        in page.locator("[data-chart=rich-squared_parameter_norm] .note").inner_text()
    )


def test_the_list_of_runs_fits_a_phone(visit, make_audit, tmp_path):
    """Its columns were cut off; so were those of runs side by side."""
    for name in ("m40", "m00"):
        make_audit(tmp_path / "runs" / name, checkpoints=3, lenses=("latent",))
    with make_server(tmp_path / "runs", port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        for path in ("/", "/together"):
            page = visit(address + path, allowed=(address, "data:"), ready=".stack", **PHONE)
            table = page.locator(".stack").first
            assert table.evaluate("one => one.scrollWidth - one.clientWidth") == 0
            cells = page.eval_on_selector_all(
                ".stack td", "all => all.map((one) => one.getBoundingClientRect().right)"
            )
            assert max(cells) <= 390
            assert page.locator(".stack td[data-name='Test accuracy']").count() == 2
            assert "at\u00a0epoch\u00a0" in table.inner_text()
            page.goto("about:blank")
        server.shutdown()
