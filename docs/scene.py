"""The picture of docs/captions.png: where the captions demo looks, as `seqloom explain --html` draws it.

seqloom demo captions && python docs/scene.py demo/captions   # with Debian's chromium and chromium-driver
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from seqloom.api.demos.captions import FOLDER
from seqloom.api.load import load
from seqloom.probe.page import page

PICTURE = f"{FOLDER}/test-0001.png"
WIDTH, HEIGHT = 1260, 1600


def main() -> None:
    folder = Path(sys.argv[1])
    model = load(folder / "run")
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}"):
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "scene.html"
        made.write_text(page([model.explain(str(folder / PICTURE))], title="captions"), encoding="utf-8")
        browser = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        try:
            browser.get(made.as_uri())
            parts = browser.find_elements(By.TAG_NAME, "section")
            maps = next(part for part in parts if "Where it looked" in part.text)
            maps.screenshot(str(Path(__file__).parent / "captions.png"))
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
