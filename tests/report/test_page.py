"""The page: whole, self-contained, small, and deaf to hostile names."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
from html.parser import HTMLParser

import pandas as pd
import pytest

from undertow.errors import BadData
from undertow.report import page_text, read_saved, write_report
from undertow.report.gallery import MOST
from undertow.report.page import safe_json
from undertow.report.sections import SECTIONS as EVERY
from undertow.training.seal_again import seal_again

HOSTILE = (
    "<script>window.pwned=1</script>",
    "</script><script>window.pwned=1</script>",
    "\"'><img src=x onerror=window.pwned=1>",
    "{{ 7 * 7 }} ${window.pwned=1} <!-- --> ]]> \u2028 &amp;",
)
SAFE_NAMESPACE = "http://www.w3.org/2000/svg"


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts by their id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.words.append(data)


def data_of(text: str) -> dict:
    return json.loads(Elements(text).scripts[0])


def chart_of(text: str, name: str) -> dict:
    return next(chart for chart in data_of(text)["runs"][0]["charts"] if chart["id"] == name)


SECTIONS = [section for section in EVERY if not section.optional]
"""Those that every page has; the one of own lenses is tested by itself."""


def test_all_sections_are_there(audited):
    text = page_text([read_saved(audited)])
    ids = [attributes["id"] for tag, attributes in Elements(text).found if tag == "section"]
    assert ids == [section.id for section in SECTIONS]
    assert all(section.missing(audited) not in text for section in SECTIONS)
    (run,) = data_of(text)["runs"]
    assert {chart["section"] for chart in run["charts"]} == {
        section.id for section in SECTIONS if section.charts and section.id != "labels"
    }
    assert len(run["suspects"]) == MOST
    told = json.loads((audited / "audit.json").read_text())
    shown = html.unescape(text).replace("\u00a0", " ")
    assert told["headline"] in shown
    assert all(own["sentence"] in shown for own in told["verdict"])


def test_answers_say_good_bad_or_unknown(audited):
    """A tick beside "memorising: yes" was read as good news."""
    text = page_text([read_saved(audited)])
    answers = re.findall(
        r'class="topic">(\w+)</p>\s*<span class="answer (\w+)">.*?</svg>([^<]+)<', text, re.DOTALL
    )
    shown = {topic: (meaning, words) for topic, meaning, words in answers}
    assert shown["training"] == ("good", "Yes · good")
    assert shown["memorising"] == ("bad", "Yes · bad")
    assert shown["noise"] == ("bad", "Yes · bad")
    assert shown["place"][0] == "unknown"
    icons = {
        meaning: re.search(rf'answer {meaning}"><svg.*?</svg>', text, re.DOTALL)[0]
        for meaning in ("good", "bad")
    }
    assert icons["good"].split(">", 2)[2] != icons["bad"].split(">", 2)[2]


def test_a_finding_may_say_itself_what_it_means(make_audit, tmp_path):
    verdict = [
        {"topic": "memorising", "answer": "yes", "short": "yes", "meaning": "good", "sentence": "Wanted."}
    ]
    made = make_audit(tmp_path / "run", lenses=(), checkpoints=3, audit={"verdict": verdict})
    assert "Yes · good" in page_text([read_saved(made)])


@pytest.mark.parametrize("lens", ["latent", "richness", "temporal", "repair"])
def test_a_lens_alone_makes_a_page_and_the_others_say_why(make_audit, tmp_path, lens):
    text = page_text([read_saved(make_audit(tmp_path / "run", lenses=(lens,)))])
    home = {
        "latent": ["layers"],
        "richness": ["richness", "spectrum"],
        "temporal": ["time"],
        "repair": ["repair"],
    }
    for section in SECTIONS:
        if section.id in ("layers", "richness", "spectrum", "time", "repair", "labels"):
            assert (section.missing(tmp_path / "run") in text) == (section.id not in home[lens]), section.id


def test_a_run_that_was_only_recorded_makes_a_page(tmp_path):
    pd.DataFrame({"epoch": [0, 1], "test_accuracy": [0.1, 0.9]}).to_parquet(tmp_path / "metrics.parquet")
    (tmp_path / "run.json").write_text('{"config": null}')
    text = page_text([read_saved(tmp_path)])
    assert "has not been audited yet" in text
    assert data_of(text)["runs"][0]["charts"][0]["series"][0]["y"] == [0.1, 0.9]


def test_several_runs_stand_side_by_side(make_audit, tmp_path, audited):
    other = make_audit(tmp_path / "m00", noise=0.0, lenses=("latent",), layers=("layer1", "other"))
    text = page_text([read_saved(audited), read_saved(other)])
    assert [run["name"] for run in data_of(text)["runs"]] == ["m40", "m00"]
    panels = [attributes for _, attributes in Elements(text).found if attributes.get("class") == "panel"]
    assert len(panels) == 2 * len(SECTIONS)


def test_no_address_is_asked_for(audited):
    """The page works from disk: no link, image, script or style comes from anywhere."""
    text = page_text([read_saved(audited)])
    assert set(re.findall(r"https?://[^\s\"'<>`]+", text)) == {SAFE_NAMESPACE}
    for tag, attributes in Elements(text).found:
        assert tag not in ("iframe", "object", "embed", "base")
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)


def test_the_policy_allows_our_script_and_no_other(audited):
    text = page_text([read_saved(audited)])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    digest = base64.b64encode(hashlib.sha256(Elements(text).scripts[1].encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;;" in policy
    assert "default-src &#39;none&#39;" in policy
    assert "connect-src &#39;none&#39;" in policy


@pytest.fixture(scope="module")
def hostile(make_audit, tmp_path_factory):
    """A run all of whose names want to become markup."""
    verdict = [
        {"topic": own, "sentence": own, "answer": own, "rule": own, "numbers": {own: own}} for own in HOSTILE
    ]
    made = make_audit(
        tmp_path_factory.mktemp("runs") / "<script>window.pwned=1<%2fscript>", layers=HOSTILE, classes=HOSTILE,
        probes=HOSTILE[:3], checkpoints=4, suspects=True,
        audit={
            "headline": HOSTILE[1], "situation": HOSTILE[2], "verdict": verdict, "settings": {HOSTILE[0]: HOSTILE[1]},
        },
    )  # fmt: skip
    facts = json.loads((made / "run.json").read_text())
    facts["config"]["model"] = facts["machine"] = facts["data"]["name"] = HOSTILE[1]
    (made / "run.json").write_text(json.dumps(facts))
    return made


def test_hostile_names_stay_text(hostile):
    page = page_text([read_saved(hostile), read_saved(hostile)])
    elements = Elements(page)
    assert [tag for tag, _ in elements.found].count("script") == 2
    assert not [
        1
        for tag, attributes in elements.found
        if tag == "img" or any(name.startswith("on") for name in attributes)
    ]
    assert "49" not in "".join(word for word in elements.words if "7 *" in word)
    assert HOSTILE[1] in "".join(elements.words)
    assert chart_of(page, "map")["panels"][0]["down"] == ["input", *HOSTILE]


def test_the_check_for_hostile_names_can_fail():
    assert [tag for tag, _ in Elements(f"<p>{HOSTILE[1]}</p>").found].count("script") == 1
    assert any("onerror" in attributes for _, attributes in Elements(f'<p title="{HOSTILE[2]}">').found)


@pytest.mark.parametrize("text", [*HOSTILE, "<!--<script>"])
def test_data_cannot_end_its_element(text):
    made = safe_json({text: text})
    assert not set(made) & set("<>&\u2028\u2029")
    assert json.loads(made) == {text: text}


def test_not_a_number_is_refused_rather_than_written():
    with pytest.raises(ValueError, match="Out of range"):
        safe_json(float("nan"))


def test_fifty_checkpoints_of_eight_layers_stay_small(make_audit, tmp_path):
    """With 500 samples in the trajectories, 256 features in the spectra and 120 pictures: under 8 MB, by far."""
    layers = tuple(f"block{number}.conv2" for number in range(1, 9))
    made = make_audit(
        tmp_path / "big", checkpoints=50, layers=layers, samples=500, features=256, suspects=True
    )
    path = write_report([made], tmp_path / "big.html")
    assert path.stat().st_size < 3_000_000


def test_words_of_our_own_are_explained_once(audited):
    text = page_text([read_saved(audited), read_saved(audited)])
    assert [text.count(f"<dt>{word}</dt>") for word in ("Probe", "MASC", "VeLPIC")] == [1, 1, 1]
    assert "0 rich (learned), 1 lazy" in text


def test_an_empty_gallery_says_which_command_fills_it(make_audit, tmp_path):
    """Fails if the command has a placeholder, or falls apart at a blank of the folder's name."""
    made = make_audit(tmp_path / "run of mine", lenses=(), checkpoints=3)
    text = page_text([read_saved(made)]).replace("&#39;", "'")
    assert f"`undertow labels '{made}'` searches and fills this section" in text


def test_long_groups_of_facts_open_on_demand(make_audit, tmp_path):
    measures = {f"measure_{number}": number / 7 for number in range(20)}
    made = make_audit(tmp_path / "run", lenses=(), checkpoints=3, audit={"measures": measures})
    text = page_text([read_saved(made)])
    shown, opened = text.split("Headline numbers</h4>")[1].split("<summary>8 more</summary>")
    assert shown.count("<dt>") == 12
    assert opened.split("</details>")[0].count("<dt>") == 8


def test_the_same_rows_give_the_same_page(audited, tmp_path):
    first, second = (write_report([audited], tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_nothing_to_show_is_answered(tmp_path):
    with pytest.raises(BadData, match="name at least one run's folder"):
        write_report([], tmp_path / "r.html")


def test_infinite_and_missing_numbers_make_a_page(make_audit, tmp_path):
    """Fails if one diverged measure stops the whole report."""
    made = make_audit(tmp_path / "run", checkpoints=3)
    rows = pd.read_parquet(made / "audit.parquet")
    rows.loc[rows["measure"] == "nc1", "value"] = float("inf")
    rows.loc[rows["measure"] == "difference", ["low", "high"]] = None
    rows.loc[rows["lens"] == "repair", ["layer", "checkpoint"]] = None
    rows.to_parquet(made / "audit.parquet")
    page = page_text([read_saved(made)])
    assert chart_of(page, "rich-nc1")["series"][0]["y"] == [None, None, None]
    assert chart_of(page, "repair")["rows"][0]["low"] is None


def test_rows_of_anyones_lens_have_a_section(audited, tmp_path):
    """Fails if a lens that undertow does not know is left out of the page; without one there is no empty section."""
    made = tmp_path / "run"
    shutil.copytree(audited, made)
    assert 'id="own"' not in page_text([read_saved(made)])
    rows = pd.read_parquet(made / "audit.parquet")
    mine = (
        rows[rows["lens"] == "richness"]
        .head(3)
        .assign(lens="mine", measure="dead_units", layer="layer1", value=0.25)
    )
    pd.concat([rows, mine]).to_parquet(made / "audit.parquet", index=False)
    seal_again(made)
    text = page_text([read_saved(made)])
    assert 'id="own"' in text
    assert "dead units" in text
