"""Command lines in the documentation run as they stand, in a reader's folder, made smaller as reader.py lists.

What cannot run here says why in NOT_RUN; a line that is neither run nor listed fails.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from reader import PAGES, ROOT, SMALLER, blocks, made_smaller

from undertow.cli import main

NOT_RUN = {
    r"make ": "the Makefile has the target, see below; the target itself is what CI and people run",
    r"source ": "sets up the reader's own shell",
    r"pip install ": "the extra exists, see below; nothing is downloaded in tests",
    r"undertow serve ": "serves until it is stopped: tests/report/test_server.py",
    r"export |ray start |first=|head=|srun |  ray |until |  --cpus|#": "two Ray nodes: tests/engine/test_cluster.py",
    r"kubectl |undertow .*\$head": "needs Kubernetes or Slurm; the page says that we did not run it",
}
EXIT = {"--fail-if": 3}
"""The gate in README holds for a run that memorised; every other line ends with 0."""
LEDGER = "results.md"
"""Its lines repeat hours of studies; each study's smoke scale runs in tests/studies."""
SLOW = {"README.md", "cluster.md", "labels.md", "studies.md"}
WITH_COMMANDS = {page.name: page for page in PAGES if blocks(page, "(?:bash|sh)") and page.name != LEDGER}


def lines_of(page: Path) -> list[str]:
    """The page's lines without their comments; a line that ends in a backslash goes on."""
    text = "\n".join(blocks(page, "(?:bash|sh)")).replace("\\\n", " ")
    found = [re.sub(r"\s+#.*", "", line).strip() for line in text.splitlines()]
    return [line for line in found if line and not line.startswith("#")]


def is_run(line: str) -> bool:
    return line.startswith("undertow ") and not any(re.match(one, line) for one in NOT_RUN)


@pytest.mark.parametrize("name", sorted(WITH_COMMANDS))
def test_every_line_is_run_or_says_why_not(name: str):
    for line in lines_of(WITH_COMMANDS[name]):
        assert is_run(line) or any(re.match(one, line) for one in NOT_RUN), line


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in sorted(WITH_COMMANDS)]
)
def test_the_lines_of_a_page_run(
    name: str, desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Fails for a flag that went, a file that a page names and nobody makes, or an answer that is an error."""
    shutil.copytree(desk, tmp_path / "desk")
    monkeypatch.chdir(tmp_path / "desk")
    monkeypatch.syspath_prepend(str(tmp_path / "desk"))
    if name == "README.md":
        shutil.rmtree("runs/m40")  # its first line trains it
    for line in filter(is_run, lines_of(WITH_COMMANDS[name])):
        wanted = next((code for flag, code in EXIT.items() if flag in line), 0)
        code = main(shlex.split(made_smaller(line, SMALLER))[1:])
        said = capsys.readouterr()
        assert code == wanted, f"{line}\n{said.out[-2000:]}\n{said.err[-2000:]}"


def test_a_wrong_line_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert main(["audit", "runs/none"]) != 0


def test_what_is_made_smaller_is_on_the_pages():
    text = "\n".join(line for page in WITH_COMMANDS.values() for line in lines_of(page))
    for pattern, instead in SMALLER:
        text, count = re.subn(pattern, instead, text)
        assert count, pattern


def test_targets_of_make_and_extras_of_pip_exist():
    """Fails for `make X` or `undertow[X]` on a page where nothing is behind X."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        one
        for page in WITH_COMMANDS.values()
        for line in lines_of(page)
        for one in re.findall(r"^make (\w+)", line)
    }
    assert named
    assert named <= targets
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(re.findall(r"undertow\[(\w+)\]", text)) <= set(project["optional-dependencies"])


def test_the_server_that_readme_starts_answers(desk: Path):
    """`undertow serve runs/`: the line that NOT_RUN leaves out, until its first answer."""
    code = "import sys; from undertow.cli import main; sys.exit(main(sys.argv[1:]))"
    asked = [sys.executable, "-u", "-c", code, "serve", "runs/", "--port", "0"]
    with subprocess.Popen(
        asked, cwd=desk, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            assert server.stdout is not None
            said = "".join(iter_until(server.stdout, "http://127.0.0.1"))
            assert re.search(r"http://127\.0\.0\.1:\d+", said), said
        finally:
            server.terminate()


def iter_until(stream, wanted: str):  # type: ignore[no-untyped-def]
    """Lines up to the one that has `wanted`."""
    for line in stream:
        yield line
        if wanted in line:
            return
