"""The picture of a study of pictures in the docs: scenes of the captions demo, two made-up systems, a real browser.

python docs/screens_rate_picture.py FOLDER   # a new folder; writes docs/rate-picture.png
"""

from __future__ import annotations

import sys
import time
from itertools import islice
from pathlib import Path

from screens import kept, sized
from screens_rate import shown
from selenium.webdriver.common.action_chains import ActionChains

from seqloom.api.demos.captions import scenes
from seqloom.rate.making import Wishes, made
from seqloom.rate.material import Sources, System, gathered
from seqloom.rate.questions import chosen


def study(folder: Path) -> Path:
    """Five scenes: one system says a right caption of each, the other one's colours are wrong."""
    names, right, wrong = [], [], []
    for number, scene in enumerate(islice(scenes("test"), 5)):
        scene.draw(folder / f"{number}.png")
        names.append(f"{number}.png")
        right.append(scene.captions()[0])
        wrong.append(scene.captions()[-1].replace("red", "green").replace("blue", "yellow"))
    for name, lines in (("names.txt", names), ("one.txt", right), ("two.txt", wrong)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    path = folder / "pictures.sqlite"
    path.unlink(missing_ok=True)
    systems = [System(name, str(folder / f"{name}.txt")) for name in ("one", "two")]
    some = gathered(systems, Sources(source=str(folder / "names.txt")))
    made(path, some, Wishes(chosen("adequate,fluent,rank", 2), checks=0, seed=2), ["anna"])
    return path


def main() -> None:
    with shown(Path(sys.argv[1]).absolute(), study) as (light, link, _):
        sized(light, (1100, 700))
        light.get(link)
        time.sleep(2)
        for key in ("y", "y", "1", "n"):
            ActionChains(light).send_keys(key).perform()
        time.sleep(1)
        kept(light, "rate-picture")


if __name__ == "__main__":
    main()
