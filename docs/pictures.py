"""Takes the README's picture, the top of a demo's report: python docs/pictures.py demo/report.html

Needs chromium and the package playwright (they come with the test tools).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

SIZE = {"width": 1180, "height": 1000}


def main(page: str) -> None:
    target = Path(__file__).parent / "pictures" / "report.png"
    parts = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for anchor, height in (("", 520), ("#accuracy", 640)):
            view = browser.new_page(viewport={**SIZE, "height": height})
            view.goto(Path(page).resolve().as_uri() + anchor)
            view.wait_for_timeout(1500)
            view.screenshot(path=str(target))
            parts.append(Image.open(target).convert("RGB"))
        browser.close()
    whole = Image.new("RGB", (SIZE["width"], sum(part.height for part in parts)))
    top = 0
    for part in parts:
        whole.paste(part, (0, top))
        top += part.height
    whole.quantize(256, kmeans=1).save(target, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
