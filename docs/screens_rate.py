"""The picture of a study's page in the docs: two small runs of `screens.py` asked, and rated by keys in a real browser.

python docs/screens_rate.py FOLDER   # the folder of screens.py, or a new one; writes docs/rate.png
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from screens import HERE, MODELS, browser, trained
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from seqloom.rate.app import app_of
from seqloom.rate.making import Wishes, made
from seqloom.rate.material import Sources, System, gathered
from seqloom.rate.questions import chosen
from seqloom.rate.store import Store
from seqloom.web.listening import Address, Listening

SIZE = (1100, 760)


def study(folder: Path) -> Path:
    """Forty sentences of the test set, answered by both runs."""
    runs = {name: folder / name for name in MODELS}
    if not all((run / "bundle").is_dir() for run in runs.values()):
        runs = trained(folder)
    path = folder / "study.sqlite"
    path.unlink(missing_ok=True)
    systems = [System(name, str(run)) for name, run in runs.items()]
    wishes = Wishes(chosen("errors,adequacy,rank", len(systems)), items=40, seed=4)
    made(path, gathered(systems, Sources()), wishes, ["anna"])
    return path


def different(store: Store) -> int:
    """The first item, as Anna counts, that the runs answer differently."""
    from seqloom.rate.blind import View

    view = View(store.plan, "anna")
    for number in range(1, len(view) + 1):
        found = view.task(number)
        if found is not None and len(found[1].candidates) == len(found[1].outputs) == 2:
            return number
    return 1


def rated(opened: webdriver.Chrome, link: str, number: int) -> None:
    """Some keys: to the item, then what is like the reference is praised, and the other is not."""
    metrics = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    opened.get(link)
    time.sleep(1)
    for _ in range(number - 1):
        ActionChains(opened).send_keys(
            Keys.ARROW_DOWN, Keys.ARROW_RIGHT
        ).perform()  # to a question that knows no arrows
        time.sleep(0.5)
    for said in opened.find_elements(By.CSS_SELECTOR, ".said"):
        right = said.get_property("textContent") == opened.find_element(By.CSS_SELECTOR, ".reference").text
        more = Keys.SHIFT + Keys.ARROW_RIGHT
        for key in ("n", " ", "5") if right else (Keys.ARROW_RIGHT, more, more, "2", " ", "2", "2"):
            held = ActionChains(opened).key_down(Keys.SHIFT) if key == more else ActionChains(opened)
            held.send_keys(key[-1]).key_up(Keys.SHIFT).perform()
    time.sleep(0.5)


@contextmanager
def shown(folder: Path, study: Callable[[Path], Path]) -> Iterator[tuple[webdriver.Chrome, str, Store]]:
    """A study that is served as long as the block lasts: a browser, Anna's link, and what is written down."""
    folder.mkdir(parents=True, exist_ok=True)
    with Store(study(folder)) as store:
        address = Address(port=0)
        listener = address.bound()
        server = Listening(app_of(store))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        opened = browser(folder / "browser")
        yield opened, f"{address.url(listener)}/#{store.token('anna')}", store
        opened.quit()
        server.should_exit = True
        thread.join()


def main() -> None:
    with shown(Path(sys.argv[1]).absolute(), study) as (light, link, store):
        rated(light, link, different(store))
        place = HERE / "rate.png"
        light.save_screenshot(str(place))
        Image.open(place).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(place, optimize=True)


if __name__ == "__main__":
    main()
