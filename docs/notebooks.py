"""Writes the pages of the tutorials from their notebooks: python docs/notebooks.py

The notebooks are what is edited; tests/docs/test_notebooks.py runs them and compares the pages with them.
"""

from __future__ import annotations

import json
from pathlib import Path

DOCS = Path(__file__).parent


def page_of(notebook: Path) -> str:
    """The notebook as Markdown: its words, and its code as blocks."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts = ["".join(cell["source"]) for cell in cells]
    code = [cell["cell_type"] == "code" for cell in cells]
    blocks = [
        f"```python\n{text}\n```" if is_code else text for text, is_code in zip(parts, code, strict=True)
    ]
    blocks.insert(1, f"*This page is a notebook: [{notebook.name}](notebooks/{notebook.name}).*")
    return "\n\n".join(blocks).replace("](../", "](") + "\n"


def main() -> None:
    for notebook in sorted((DOCS / "notebooks").glob("*.ipynb")):
        (DOCS / f"{notebook.stem}.md").write_text(page_of(notebook), encoding="utf-8")


if __name__ == "__main__":
    main()
