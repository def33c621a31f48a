"""Takes the README's picture, the top of a demo's report: python docs/pictures.py demo/report.html

Needs chromium and the package playwright (they come with the test tools).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

SIZE: Any = {"width": 1180, "height": 1010}


def main(page: str) -> None:
    target = Path(__file__).parent / "pictures" / "report.png"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        view = browser.new_page(viewport=SIZE)
        view.goto(Path(page).resolve().as_uri())
        view.wait_for_timeout(1500)
        view.screenshot(path=str(target))
        browser.close()
    Image.open(target).convert("RGB").quantize(256, kmeans=1).save(target, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
