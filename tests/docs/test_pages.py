"""The documentation tells the truth as far as a machine can tell: links, commands, names."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

import undertow as ut
from undertow.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def commands() -> list[str]:
    lines = [line for page in PAGES for block in blocks(page, "bash") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.startswith("undertow ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_there_are_commands_to_check():
    assert len(commands()) >= 6


@pytest.mark.parametrize("line", commands())
def test_commands_are_understood(line: str):
    app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)


def test_a_wrong_command_is_noticed():
    with pytest.raises(Exception, match="Unknown"):
        app.parse_args(["train", "--no-such-option", "1"], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_compile_and_use_names_that_exist(page: Path):
    for block in blocks(page, "python"):
        compile(block, page.name, "exec")
    for name in set(re.findall(r"\but\.([A-Za-z_]+)", page.read_text(encoding="utf-8"))):
        assert name in ut.__all__, name


def test_every_page_is_in_the_site_and_in_llms_txt():
    """Fails if a page is written and nobody can find it."""
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert {page for page in pages if page not in site} == set()
    assert {page for page in pages if f"({page})" not in listed} == {"index.md", "labels-measured.md"}
    assert set(re.findall(r"\]\((\S+\.md)\)", listed)) <= pages


def test_the_page_on_labels_says_what_its_csv_holds():
    """Fails if a number is changed by hand, or a cell is in the csv and not counted."""
    found = importlib.util.spec_from_file_location("_label_page", ROOT / "bench" / "_label_page.py")
    page_maker = importlib.util.module_from_spec(found)
    found.loader.exec_module(page_maker)
    page = (ROOT / "docs" / "labels-measured.md").read_text(encoding="utf-8")
    table = pd.read_csv(ROOT / "docs" / "labels-measured.csv")
    assert page.count("<!-- made:") == len(page_maker.PARTS)
    assert page_maker.rewritten(page, table) == page
    assert page_maker.rewritten(page, table.assign(AP=table["AP"] - 0.1)) != page
