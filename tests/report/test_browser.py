"""The page in a real browser: it opens quietly, its controls change its charts, its downloads hold the numbers.

Skipped where playwright or chromium is missing.
"""

from __future__ import annotations

import json
import threading
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from undertow.report import write_report
from undertow.report.server import make_server

pytestmark = pytest.mark.usefixtures("no_complaints")


@pytest.fixture(scope="module")
def page(visitor, report):
    """One window for all tests that leave it as usable as they found it."""
    return visitor.open(report, color_scheme="light")


def drawn(page, chart):
    return page.locator(f"[data-chart={chart}] .host").first.inner_html()


def charts_of(page):
    return page.eval_on_selector_all("[data-chart]", "nodes => nodes.map(node => node.dataset.chart)")


def test_every_chart_is_drawn(page):
    charts = page.eval_on_selector_all("[data-chart]", "nodes => nodes.map(node => node.dataset.chart)")
    assert {
        "accuracy",
        "depth",
        "map",
        "repair",
        "rich-d_lr",
        "spectrum-quality",
        "composites",
        "swap",
    } <= set(charts)
    assert {"window", "density", "parameter-drift", "feature-drift", "trajectory", "dimension"} <= set(charts)
    for chart in charts:
        assert page.locator(f"[data-chart={chart}] svg path, [data-chart={chart}] svg circle").count() > 0, (
            chart
        )
    drawings = page.eval_on_selector_all(".host svg", "nodes => nodes.map(node => node.outerHTML)")
    assert "NaN" not in "".join(drawings)


@pytest.mark.parametrize(
    ("control", "charts"),
    [
        ("epoch", ["accuracy", "depth"]),
        ("spectrum", ["spectrum-quality", "spectrum-utilisation", "spectrum-intensity"]),
        ("trajectory", ["trajectory"]),
    ],
)
def test_sliders_change_their_charts(page, control, charts, eventually):
    before = [drawn(page, chart) for chart in charts]
    slider = page.locator(f"[data-control={control}]")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    for chart, old in zip(charts, before, strict=True):
        eventually(page, lambda chart=chart, old=old: drawn(page, chart) != old)
    assert slider.get_attribute("aria-valuetext").split()[-1] == ("16" if control == "spectrum" else "24")


@pytest.mark.parametrize(
    ("control", "value", "chart"),
    [
        ("map-probe", "VeLPIC", "map"), ("map-minus", "model", "map"), ("map-minus", "probe:VeLPIC", "map"),
        ("time-cut", "layer3", "composites"), ("time-cut", "layer2", "trajectory"),
        ("time-measure", "accuracy", "composites"),
    ],
)  # fmt: skip
def test_toggles_change_their_charts(page, control, value, chart):
    before = drawn(page, chart)
    page.select_option(f"[data-control={control}]", value)
    assert drawn(page, chart) != before


def test_curves_can_be_hidden_and_shown_again(page):
    chip = page.locator("[data-chart=accuracy] .chip").first
    before = page.locator("[data-chart=accuracy] .line").count()
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert page.locator("[data-chart=accuracy] .line").count() == before - 1
    page.keyboard.press("Enter")  # the focus stays on the chip
    assert page.locator("[data-chart=accuracy] .line").count() == before


def test_all_curves_may_be_hidden(page):
    chips = page.locator("[data-chart=depth] .chip")
    for place in range(chips.count()):
        chips.nth(place).click()
    assert page.locator("[data-chart=depth] .line").count() == 0
    for place in range(chips.count()):
        chips.nth(place).click()


def test_values_are_read_by_mouse_and_by_keys(page):
    page.locator("[data-chart=map] .host").hover(position={"x": 500, "y": 100})
    assert "layer" in page.locator(".tip").inner_text()
    page.locator("[data-chart=accuracy] .host").focus()
    page.keyboard.press("ArrowRight")
    first = page.locator(".tip").inner_text()
    page.keyboard.press("ArrowLeft")
    assert "epoch" in first
    assert page.locator(".tip").inner_text() != first
    page.keyboard.press("Escape")
    assert page.locator(".tip").is_hidden()


def test_a_click_on_the_chart_chooses_the_epoch(page):
    page.locator("[data-chart=accuracy] .host").click(position={"x": 300, "y": 150})
    assert page.locator("#accuracy .controls output").inner_text() not in ("24", "32")


def test_trajectories_play(page, eventually):
    page.locator("[data-control=trajectory]").fill("0")
    before = drawn(page, "trajectory")
    page.locator(".play").click()
    eventually(page, lambda: drawn(page, "trajectory") != before)
    # On a busy machine it may have come to its end by now, and a press would begin again.
    page.locator(".play").evaluate("one => one.getAttribute('aria-label') === 'Pause' && one.click()")
    still = drawn(page, "trajectory")
    page.wait_for_timeout(200)  # that nothing happens can only be waited for
    assert drawn(page, "trajectory") == still


def test_the_gallery_shows_pictures_and_can_be_narrowed(page):
    """The first two dozen; a button, reached by keys, shows the rest."""
    widths = page.eval_on_selector_all("#labels .suspect img", "all => all.map(one => one.naturalWidth)")
    assert widths == [widths[0]] * 24
    assert widths[0] > 0
    button = page.locator("#labels button.all")
    assert button.inner_text() == "Show all 120"
    page.locator("[data-control=given]").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("#labels .suspect").count() == 120
    assert (button.get_attribute("aria-expanded"), button.inner_text()) == ("true", "Show the first 24")
    button.click()
    given = page.locator("#labels .suspect .was").first.inner_text()
    page.select_option("[data-control=given]", given)
    assert set(page.locator("#labels .suspect .was").all_inner_texts()) == {given}
    assert button.is_hidden() == (page.locator("#labels .suspect").count() < 24)
    page.select_option("[data-control=given]", "")


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_dark_follows_the_system_and_the_button(visit, report, page):
    dark = visit(report, color_scheme="dark")
    deep = background(dark)
    assert background(page) != deep
    before = drawn(page, "map")
    page.locator("[data-theme-button]").click()
    assert background(page) == deep
    assert drawn(page, "map") != before  # the colours of the map turn round too
    page.locator("[data-theme-button]").click()
    assert background(page) != deep


CONTRAST = r"""() => {
  const lum = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map((own) => own / 255)
    .map((own) => (own <= 0.03928 ? own / 12.92 : ((own + 0.055) / 1.055) ** 2.4))
    .reduce((sum, own, k) => sum + own * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const own = getComputedStyle(node).backgroundColor;
      if (!/, 0\)$/.test(own)) return own;
    }
    return "rgb(255, 255, 255)";
  };
  const read = ".answer,h1,h2,h3,p,dt,dd,small,.chip:not([aria-pressed=false]),summary,.tick text,text.label,nav a,th,"
    + "td";
  return [...document.querySelectorAll(read)].map((node) => {
    const style = getComputedStyle(node), colour = node instanceof SVGElement ? style.fill : style.color;
    const [high, low] = [lum(colour), lum(behind(node))].sort((a, b) => b - a);
    return [(high + 0.05) / (low + 0.05), node.textContent.slice(0, 30)];
  }).filter(([ratio]) => ratio < 4.5);
}"""


def test_text_is_readable_in_both_themes(page):
    """WCAG AA: 4.5 to 1 for everything that is read."""
    for scheme in ("dark", "light"):
        page.evaluate(f"document.documentElement.dataset.theme = '{scheme}'")
        assert page.evaluate(CONTRAST) == [], scheme


def test_no_width_scrolls_sideways_and_charts_follow(visit, report, settled):
    page = visit(report, width=1920)
    widths = []
    for width in (1920, 768, 390, 360):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(f"innerWidth === {width}")
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        hosts = page.eval_on_selector_all(".host", "all => all.map(one => one.getBoundingClientRect().right)")
        assert max(hosts) <= width
        widths.append(float(page.locator("[data-chart=swap] .host svg").get_attribute("width")))
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 320


def fetched(page, chart, kind, folder):
    with page.expect_download() as waiting:
        page.locator(f"[data-chart={chart}] .tool", has_text=kind).click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def test_numbers_download_as_they_were_measured(page, audited, tmp_path):
    found = pd.read_csv(fetched(page, "accuracy", "CSV", tmp_path))
    model = found[found["curve"] == "model, test"]
    metrics = pd.read_parquet(audited / "metrics.parquet")
    metrics = metrics[metrics["epoch"] % 4 == 0]
    assert model["epoch"].tolist() == metrics["epoch"].tolist()
    assert model["accuracy"].tolist() == pytest.approx(metrics["test_accuracy"].tolist(), abs=1e-4)


def test_charts_download_as_pictures(page, tmp_path):
    for chart in ("accuracy", "map", "repair"):
        drawing = ElementTree.parse(fetched(page, chart, "SVG", tmp_path)).getroot()
        texts = [node.text or "" for node in drawing.iter("{http://www.w3.org/2000/svg}text")]
        assert any("m40" in text for text in texts)
    picture = fetched(page, "map", "PNG", tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 5000


KEEP_INSTEAD = """() => {
  window.kept = [];
  URL.createObjectURL = (blob) => { window.kept.push(blob); return "data:,"; };
  HTMLAnchorElement.prototype.click = () => {};
}"""


def test_every_chart_has_its_numbers_and_its_picture(visit, report):
    """Kept in the page instead of downloaded: a browser lets only ten files through at a time."""
    page = visit(report)
    page.evaluate(KEEP_INSTEAD)
    for chart in charts_of(page):
        for kind in ("CSV", "SVG"):
            page.locator(f"[data-chart={chart}] .tool", has_text=kind).dispatch_event("click")
        numbers, drawing = page.evaluate("Promise.all(window.kept.splice(0).map((blob) => blob.text()))")
        assert len(numbers.splitlines()) > 2, chart
        assert ElementTree.fromstring(drawing).tag.endswith("svg")
        assert "var(--" not in drawing, chart  # colours are inlined: the file stands alone
        assert "NaN" not in drawing, chart


def test_everything_is_reached_by_keys_alone(page):
    """The order of the tab key is that of the page; nothing with a use is left out of it."""
    left_out = (
        "all => all.filter((one) => !one.closest('[hidden]'))"
        ".filter((one) => one.tabIndex || !one.getClientRects().length).map((one) => one.outerHTML)"
    )
    assert page.eval_on_selector_all("button, select, input, summary, nav a, .host", left_out) == []
    page.locator("[data-control=epoch]").focus()
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.className"))
    assert reached == ["tool"] * 3 + ["chip"] * 7 + ["host fill", "more"]


def test_several_runs_in_one_page(visit, audited, make_audit, tmp_path):
    other = make_audit(tmp_path / "m00", noise=0.0, layers=("layer1", "other"), checkpoints=5)
    bare = make_audit(tmp_path / "bare", lenses=(), checkpoints=5)
    page = visit(write_report([audited, other, bare], tmp_path / "three.html").as_uri(), width=1600)
    assert page.locator("[data-chart=accuracy]").count() == 3
    assert page.locator("[data-chart=map]").count() == 2
    assert page.locator("[data-chart=compare-0] .line").count() == 3
    for cut in ("other", "layer3"):
        page.select_option("[data-control=time-cut]", cut)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1600


def test_hostile_names_do_nothing(visit, make_audit, tmp_path):
    names = (
        "<img src=x onerror=window.pwned=1>",
        "</script><script>window.pwned=1</script>",
        "\"'`${window.pwned=1}",
    )
    audit = {"headline": names[1], "verdict": [{"topic": names[0], "sentence": names[1], "answer": "yes"}]}
    made = make_audit(
        tmp_path / "<img src=x onerror=window.pwned=1>", layers=names, classes=names, probes=names, checkpoints=4,
        suspects=True, audit=audit,
    )  # fmt: skip
    page = visit(write_report([made], tmp_path / "hostile.html").as_uri())
    page.locator("[data-chart=map] .host").hover(position={"x": 500, "y": 100})
    for control in ("map-probe", "time-cut"):
        page.locator(f"[data-control={control}]").select_option(index=1)
    assert page.evaluate("window.pwned") is None
    assert page.locator("main img").count() == page.locator(".suspect img").count()
    assert names[0] in page.locator("[data-control=map-probe]").inner_text()


ATTACKS = (
    "<svg/onload=window.pwned=1>", "</style></textarea></title><script>window.pwned=1</script>", "window.pwned=1",
    "&lt;img src=x onerror=window.pwned=1&gt;", "<!--><script>window.pwned=1</script>", "{{constructor('pwned=1')()}}",
    '<iframe srcdoc="<script>parent.pwned=1</script>">', "<meta http-equiv=refresh content='0;url=http://x.invalid'>",
    "<base href=//x.invalid/>", "<a href=javascript:window.pwned=1>=cmd</a>", "]]>\u2028</svg><script>pwned=1</script>",
    "<details open ontoggle=window.pwned=1>", "\u202e<style>@import'//x.invalid'</style>", "\x1b]0;x\x07<b>bold</b>",
)  # fmt: skip


def test_hostile_texts_and_labels_of_a_file_do_nothing(visit, tmp_path):
    """Files of somebody else, from the command line to the page: texts, names of classes and of features."""
    from undertow.cli import main

    draw, count = np.random.default_rng(0), 40 * len(ATTACKS)
    number = np.arange(count) % len(ATTACKS)
    features = draw.normal(size=(count, 20)) + 4 * np.eye(len(ATTACKS), 20)[number]
    wrong = np.arange(count) % 13 == 5
    np.save(tmp_path / "f.npy", features.astype(np.float32))
    names = np.array(ATTACKS)
    pd.DataFrame({"label": names[np.where(wrong, (number + 1) % len(names), number)]}).to_csv(
        tmp_path / "y.csv"
    )
    pd.DataFrame({"text": names[number]}).to_csv(tmp_path / "t.csv")
    files = {
        "features": f"<i>={tmp_path / 'f.npy'}",
        "labels": tmp_path / "y.csv",
        "texts": tmp_path / "t.csv",
    }
    options = [word for name, own in files.items() for word in (f"--{name}", str(own))]
    assert main(["labels", *options, "--report", str(tmp_path / "found")]) == 0
    page = visit((tmp_path / "found/report.html").as_uri(), ready=".suspect")
    for one in page.locator("summary").all():
        one.dispatch_event("click")
    assert page.evaluate("[window.pwned, document.title.length > 0, frames.length]") == [None, True, 0]
    assert page.locator("iframe, base, main script, main meta, main a[href^=javascript]").count() == 0
    assert ATTACKS[3] in page.locator("main").inner_text(), "as it was written, not as what it spells"


def test_a_csv_cell_is_no_formula(visit, make_audit, tmp_path):
    made = make_audit(
        tmp_path / "run", layers=('=HYPERLINK("x")', 'a,"b"'), checkpoints=3, lenses=("latent",)
    )
    page = visit(write_report([made], tmp_path / "r.html").as_uri())
    found = pd.read_csv(fetched(page, "map", "CSV", tmp_path))
    assert set(found["layer"]) == {'\'=HYPERLINK("x")', 'a,"b"', "input", "the model"}


def test_a_served_page_follows_the_run(visit, make_audit, tmp_path):
    """New numbers come without a hand on the keyboard, and the chosen probe stays chosen."""
    made = make_audit(tmp_path / "runs" / "m40", checkpoints=4, lenses=("latent",))
    with make_server(tmp_path / "runs", port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        page = visit(f"{address}/run/m40", allowed=(address, "data:"))
        page.select_option("[data-control=map-probe]", "VeLPIC")
        audit = json.loads((made / "audit.json").read_text())
        (made / "audit.json").write_text(json.dumps({**audit, "headline": "Something new was found."}))
        page.wait_for_selector("text=Something new was found.")
        assert page.locator("[data-control=map-probe]").input_value() == "VeLPIC"
        page.goto("about:blank")
        server.shutdown()


def test_the_first_chart_and_six_suspects_stand_above_the_fold(page):
    """On a laptop's 1280 x 800: fails if the head grows again."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate("scrollTo(0, 0)")
    plot = page.locator("#accuracy .card .host > svg").first.bounding_box()
    assert plot["y"] + plot["height"] <= 800, "the whole chart, with its axis"
    ends = page.eval_on_selector_all(
        ".glance .suspect", "all => all.map(one => one.getBoundingClientRect().bottom)"
    )
    assert len(ends) == 6
    assert max(ends) <= 800, "pictures and what is said under them"
