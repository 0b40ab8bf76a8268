"""The screenshots of docs/: a little German and English, made up here, two trainings of minutes, and a real browser.

python docs/screens.py FOLDER   # with Debian's chromium and chromium-driver; writes docs/{explain,report-*,page-*}.png
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from seqloom.api.evaluate import Judge
from seqloom.api.load import load
from seqloom.api.report import report
from seqloom.api.testset import held_out, prepared
from seqloom.api.train import train
from seqloom.probe.page import page
from seqloom.serve.app import guarded
from seqloom.serve.limits import Limits
from seqloom.serve.runs import Opening, Runs
from seqloom.serve.server import Server
from seqloom.serve.service import Service as Answering
from seqloom.web.listening import Address

HERE = Path(__file__).parent
NOUNS = {
    "der Hund": "the dog",
    "die Katze": "the cat",
    "das Pferd": "the horse",
    "der Weber": "the weaver",
    "die Lehrerin": "the teacher",
    "das Kind": "the child",
    "der Nachbar": "the neighbour",
    "die Ziege": "the goat",
    "das Schaf": "the sheep",
    "der Müller": "the miller",
    "die Schwester": "the sister",
    "das Mädchen": "the girl",
}
VERBS = {"sieht": "sees", "sucht": "looks for", "findet": "finds", "hört": "hears", "mag": "likes", "malt": "paints"}
WHEN = {"heute": "today", "am Abend": "in the evening", "im Winter": "in winter", "auf dem Markt": "at the market"}
HOW = {"alte": "old", "kleine": "little", "müde": "tired", "fröhliche": "cheerful", "graue": "grey"}
OBJECT = {"der": "den", "die": "die", "das": "das"}
RECIPE = """\
languages: {{source: de, target: en}}
data: {{train: "{pairs}", split: {{dev: 0.05, test: 0.05}}}}
source: {{tokenizer: words, lowercase: true}}
target: {{tokenizer: words, lowercase: true}}
model:
  source_embedding: {{width: 64}}
  target_embedding: {{width: 64}}
  encoder: {encoder}
  decoder: {decoder}
task: {{label_smoothing: 0.1}}
batching: {{tokens: 512}}
training:
  steps: {steps}
  optimiser: {{kind: adam, lr: 2e-3}}
  schedule: {{kind: cosine, warmup: 100}}
  validate_every: 30
  metric: bleu
search: {{strategy: {{kind: beam, size: 5}}}}
evaluation: {{metrics: [bleu, chrf], validate_examples: 150}}
runtime: {{device: cpu, threads: 1}}
"""
STACK = "{kind: transformer, width: 64, layers: 3, heads: 4, dropout: 0.1}"
MODELS = {
    "attention": (STACK, STACK, 190),  # not until it errs no more: errors are to be seen
    "vector": ("{kind: rnn, cell: gru, width: 64}", "{kind: rnn, cell: gru, width: 64}", 500),
}


def noun(rng: Random, subject: bool) -> tuple[str, str]:
    german, english = rng.choice(list(NOUNS.items()))
    article, name = german.split()
    article = article if subject else OBJECT[article]
    if rng.random() < 0.4:
        how, means = rng.choice(list(HOW.items()))
        ending = "n" if article == "den" else ""
        return f"{article} {how}{ending} {name}", f"the {means} {english.split()[1]}"
    return f"{article} {name}", english


def sentence(rng: Random) -> tuple[str, str]:
    """German moves its verb; English does not."""
    (who, who_en), (whom, whom_en) = noun(rng, True), noun(rng, False)
    (does, does_en), (when, when_en) = rng.choice(list(VERBS.items())), rng.choice(list(WHEN.items()))
    form = rng.randrange(4)
    if form == 0:
        return f"{who} {does} {whom} .", f"{who_en} {does_en} {whom_en} ."
    if form == 1:
        return f"{when} {does} {who} {whom} .", f"{who_en} {does_en} {whom_en} {when_en} ."
    if form == 2:
        return f"ich glaube , dass {who} {whom} {does} .", f"i think that {who_en} {does_en} {whom_en} ."
    (other, other_en), (third, third_en) = rng.choice(list(VERBS.items())), noun(rng, False)
    return (
        f"{who} , {who.split()[0]} {third} {other} , {does} {when} {whom} .",
        f"{who_en} , who {other_en} {third_en} , {does_en} {whom_en} {when_en} .",
    )


def trained(folder: Path) -> dict[str, Path]:
    rng, lines = Random(1), set[str]()
    while len(lines) < 6000:
        lines.add("\t".join(sentence(rng)) + "\n")
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(sorted(lines)), encoding="utf-8")
    runs = {}
    for name, (encoder, decoder, steps) in MODELS.items():
        recipe = folder / f"{name}.yaml"
        text = RECIPE.format(pairs=pairs, encoder=encoder, decoder=decoder, steps=steps)
        recipe.write_text(text, encoding="utf-8")
        runs[name] = train(recipe, folder / name).folder
    return runs


def pages(runs: dict[str, Path], folder: Path) -> tuple[Path, Path]:
    """The page of some answers, and the report of one run beside the other."""
    model, other = load(runs["attention"]), load(runs["vector"])
    examples = prepared(held_out(model.recipe), model.recipe)
    longest = sorted(examples, key=lambda example: -len(example.source))[:12]
    answers = folder / "explain.html"
    answers.write_text(
        page([model.explain(one.source) for one in longest], title="A little German", notes=["runs/attention, beam 5"]),
        encoding="utf-8",
    )
    judge, told = Judge(model), folder / "report.html"
    systems = [judge.run(one, examples) for one in (model, other)]
    told.write_text(report(judge, model, examples, systems), encoding="utf-8")
    return answers, told


def browser(folder: Path, dark: bool = False) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'user'}",
    ):
        options.add_argument(flag)
    found = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    found.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
    return found


def shot(opened: webdriver.Chrome, page_file: Path, name: str, size: tuple[int, int], anchor: str = "") -> None:
    """What a window of this size shows from a place of the page on."""
    sized(opened, size)
    opened.get("about:blank")
    opened.get(page_file.as_uri() + anchor)
    kept(opened, name)


def sized(opened: webdriver.Chrome, size: tuple[int, int]) -> None:
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 500}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def kept(opened: webdriver.Chrome, name: str) -> None:
    place = HERE / f"{name}.png"
    opened.save_screenshot(str(place))
    Image.open(place).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(place, optimize=True)


# --- the page of a server ---------------------------------------------------------------------------------------------


@contextmanager
def serving(runs: dict[str, Path]) -> Iterator[str]:
    """The address of a server for these runs."""
    service = Answering.of(Runs(list(runs.values()), Opening("cpu", 1)), Limits(rate="none"))
    service.at_home = service.shows_examples = True
    listener = Address(port=0).bound()
    server = Server(guarded(service), drain=0.0)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    service.batcher.stop()


class Visitor:
    """Somebody who plays with the page."""

    def __init__(self, opened: webdriver.Chrome, address: str, size: tuple[int, int]) -> None:
        self.browser = opened
        sized(opened, size)
        opened.get("about:blank")
        opened.get(address)
        self.until(lambda: self.one(".about").text)

    def one(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def until(self, look: Callable[[], object]) -> None:
        WebDriverWait(self.browser, 30).until(lambda _: look())

    def answered(self) -> None:
        """Everything that was asked has come."""
        time.sleep(0.6)
        self.until(lambda: not self.browser.find_elements(By.CSS_SELECTOR, ".output.streaming"))

    def ask(self, text: str) -> None:
        self.one("textarea").send_keys(text)
        self.answered()

    def click(self, selector: str, place: int = 0) -> None:
        self.browser.find_elements(By.CSS_SELECTOR, selector)[place].click()
        self.answered()


def played(runs: dict[str, Path], light: webdriver.Chrome, dark: webdriver.Chrome) -> None:
    """A word chosen, attention moved, two models side by side."""
    text = "ich glaube , dass die kleine Lehrerin den müden Nachbar sucht ."
    with serving(runs) as address:
        visitor = Visitor(light, address, (1200, 1500))
        visitor.ask(text)
        visitor.click(".tokens [data-side=output]", 9)
        visitor.click(".choose")
        visitor.click(".choice label:has([value=ribbons])")
        light.execute_script("scrollTo(0, 0)")
        kept(light, "page-edit")
        visitor = Visitor(dark, address, (1500, 1300))
        visitor.one("#reference").send_keys("i think that the little teacher looks for the tired neighbour .")
        Select(visitor.one("[data-control=other]")).select_by_visible_text("vector")
        visitor.ask(text)
        dark.execute_script("scrollTo(0, 0)")
        kept(dark, "page-two")
        visitor = Visitor(light, address, (390, 1300))
        visitor.ask(text)
        light.execute_script("scrollTo(0, 0)")
        kept(light, "page-phone")


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    runs = trained(folder)
    answers, told = pages(runs, folder)
    light, dark = browser(folder / "light"), browser(folder / "dark", dark=True)
    shot(light, answers, "explain", (1200, 1520))
    shot(light, told, "report-overview", (1100, 1600))
    shot(light, told, "report-diagnosis", (1100, 1300), "#diagnosis")
    shot(dark, told, "report-dark", (1100, 1600))
    shot(light, told, "report-phone", (390, 1400))
    played(runs, light, dark)
    for one in (light, dark):
        one.quit()


if __name__ == "__main__":
    main()
