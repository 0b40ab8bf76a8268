"""What does pretraining on plain text gain, at 1 %, 10 % and 100 % of the labelled data?

    python benchmarks/pretraining.py --data FOLDER [--only inflection,transliteration] [--seeds 1-3] [--runs DIR]
    python benchmarks/pretraining.py --data FOLDER --only tagging --part dev --portions 10   # to choose settings

FOLDER holds what the tasks read: conll2018-inflection/, translit-ar-en/, ud-ewt/, sst2/, mr-polarity/, multi30k/. For
each task an encoder (or encoder-decoder) first learns unlabelled text; then the same recipe, steps and seeds are
trained from scratch and from that run (`api/gain.py`). The text is that of the training set without its labels (27 of
1,000 test forms of the inflection and 10 of 1,590 test names stand in it as other words' forms), and where said more of
the same kind, less every sentence that dev or test has. Settings are chosen on dev (`--part dev` prints and writes no
result), and the test sets judged once.

Tasks are measured one by one and written into benchmarks/results/pretraining.json beside those that stand there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime
from seqloom.api.gain import measure_gain
from seqloom.api.many import parse_seeds
from seqloom.api.train import Wishes, train
from seqloom.config import parse_yaml, read_yaml
from seqloom.recipe import Recipe, recipe_from

RESULT = Path(__file__).parent / "results" / "pretraining.json"
RECIPES = Path(__file__).parents[1] / "recipes"


def lines_of(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def key(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def unlike(texts: Iterable[str], others: Iterable[str]) -> list[str]:
    """Each text once, and none that stands among the others."""
    seen = {key(text) for text in others}
    return [text for text in texts if key(text) and not (key(text) in seen or seen.add(key(text)))]  # type: ignore[func-returns-value]


# --- the tasks -------------------------------------------------------------------------------------------------------


def sentences(path: Path) -> Iterator[str]:
    """Of columns: one word a line, an empty line between sentences."""
    words: list[str] = []
    for line in [*lines_of(path), ""]:
        if line:
            words.append(line.split("\t")[0])
        elif words:
            yield " ".join(words)
            words = []


def tagged_text(data: Path) -> list[str]:
    return [*sentences(data / "ud-ewt" / "train.tsv.gz")]


def reviews(data: Path) -> list[str]:
    parts = {part: [line.split("\t")[1] for line in lines_of(data / "sst2" / f"{part}.tsv.gz")] for part in PARTS}
    more = [line.split("\t")[2] for line in lines_of(data / "mr-polarity" / "all.tsv.gz")][1:]
    return unlike([*parts["train"], *more], [*parts["dev"], *parts["test"]])


def captions(data: Path) -> list[str]:
    """German and English sentences, in no way told which belong together."""
    return [line for side in ("de", "en") for line in sorted(lines_of(data / "multi30k" / f"train.{side}.gz"))]


def inflected(data: Path) -> list[str]:
    """Lemmas and forms, in no way told which belong together or which tags they have."""
    rows = [line.split("\t") for line in lines_of(data / "conll2018-inflection" / "turkish_train-high.tsv.gz")]
    return sorted({word for row in rows for word in row[:2]})


def names(data: Path) -> list[str]:
    """Names in Arabic and in Latin letters, in no way told which belong together."""
    rows = [line.split("\t") for line in (data / "translit-ar-en" / "train.tsv").read_text("utf-8").splitlines()]
    return sorted({name for row in rows for name in row[:2]})


PARTS = ("train", "dev", "test")


@dataclass(frozen=True)
class Task:
    """`pretraining` is a whole recipe but for its text, `recipe` what is trained with labels, by `settings`."""

    what: str
    text: Callable[[Path], list[str]]
    pretraining: str
    recipe: str
    settings: str  # YAML, over the recipe's own, block by block


SPELLED = "encoder: {kind: spelled, characters: {kind: convolution, width: 96, kernel: 5}, width: 64, "
SUBWORDS = """
source: {tokenizer: {kind: bpe, size: 6000}, lowercase: true}
target: {tokenizer: {kind: bpe, size: 6000}, lowercase: true}
"""
SMALL = """
model:
  source_embedding: {width: 256}
  target_embedding: {width: 256}
  shared: true
  tied: true
  encoder: {kind: transformer, width: 256, layers: 3, heads: 4, feedforward: 1024, dropout: 0.3, positions: rotary}
  decoder: {kind: transformer, width: 256, layers: 3, heads: 4, feedforward: 1024, dropout: 0.3, positions: rotary}
"""
LETTERS = """
model:
  source_embedding: {width: 128}
  target_embedding: {width: 128}
  encoder: {kind: transformer, width: 128, layers: 3, heads: 4, feedforward: 512, dropout: 0.2, positions: rotary}
  decoder: {kind: transformer, width: 128, layers: 3, heads: 4, feedforward: 512, dropout: 0.2, positions: rotary}
"""
RESTORED = f"""
source: {{tokenizer: characters}}
target: {{tokenizer: characters}}
data: {{split: {{dev: 0.02, test: 0.001}}}}
{LETTERS}
task: {{source_noise: {{mask: 0.1, drop: 0.1, span: 0.1}}, label_smoothing: 0.1}}
batching: {{tokens: 1024}}
training:
  steps: 1500
  optimiser: {{kind: adam, lr: 1e-3, betas: [0.9, 0.98]}}
  schedule: {{kind: cosine, warmup: 200}}
evaluation: {{metrics: [exact], validate_examples: 0, show: 0}}
"""
TASKS = {
    "tagging": Task(
        "parts of speech (UD EWT); masked words of its 12,544 sentences",
        tagged_text,
        f"""
source: {{tokenizer: characters}}
target: {{tokenizer: symbols, vocabulary: {{min_count: 3}}}}
data: {{split: {{dev: 0.02, test: 0.001}}, limits: {{max_source: 2000}}}}
model:
  source_embedding: {{width: 32}}
  {SPELLED}word_dropout: 0.1, words: {{kind: rnn, width: 128, dropout: 0.1}}}}
  decoder: tags
task: {{restore: true, source_noise: {{mask: 0.15, replace: 0.05, keep: 0.4, whole_words: true}}}}
batching: {{tokens: 6144}}
training: {{epochs: 10, optimiser: {{kind: adam, lr: 4e-3}}, schedule: {{kind: cosine, warmup: 100}}}}
evaluation: {{metrics: [accuracy], validate_examples: 0, show: 0}}
""",
        "tagging",
        f"""
model:
  source_embedding: {{width: 32}}
  {SPELLED}word_dropout: 0.25, words: {{kind: rnn, width: 128, dropout: 0.3}}}}
  decoder: {{kind: tags, dropout: 0.3}}
training:
  epochs: null
  steps: 400
  schedule: {{kind: cosine, warmup: 50}}
  validate_every: 100
  take: [encoder, source_embedding]
evaluation: {{metrics: [accuracy], validate_examples: 500, show: 0}}
""",
    ),
    "sentiment": Task(
        "good or bad (SST-2); masked words of its training sentences and of MR's that are not in dev or test",
        reviews,
        """
source: {tokenizer: words, lowercase: true, vocabulary: {min_count: 2}}
target: {tokenizer: words, lowercase: true, vocabulary: {min_count: 2}}
data: {split: {dev: 0.02, test: 0.001}}
model:
  source_embedding: {width: 256}
  encoder: {kind: convolution, width: 256, layers: 1, kernel: 3, dropout: 0.1}
  decoder: tags
task: {restore: true, source_noise: {mask: 0.2, replace: 0.025, keep: 0.025}}
batching: {tokens: 4096}
training: {epochs: 8, optimiser: {kind: adam, lr: 2e-3}, schedule: {kind: cosine, warmup: 100}}
evaluation: {metrics: [accuracy], validate_examples: 0, show: 0}
""",
        "classification",
        """
data:
  train: {path: sst2/train.tsv.gz, columns: [1, 0]}
  dev: {path: sst2/dev.tsv.gz, columns: [1, 0]}
  test: {path: sst2/test.tsv.gz, columns: [1, 0]}
training: {epochs: null, steps: 500, validate_every: 50, take: [encoder, source_embedding]}
""",
    ),
    "inflection": Task(
        "Turkish lemma and tags to the inflected form; letters of its lemmas and forms restored",
        inflected,
        RESTORED,
        "inflection",
        f"""
{LETTERS}
training: {{steps: 1000, schedule: {{kind: cosine, warmup: 200}}, validate_every: 250, extend_vocabulary: true}}
evaluation: {{metrics: [exact], validate_examples: 200, show: 0}}
""",
    ),
    "transliteration": Task(
        "Arabic names to Latin letters; letters of the names of both sides restored",
        names,
        RESTORED,
        "transliteration",
        f"""
{LETTERS}
training:
  epochs: null
  steps: 1000
  optimiser: {{kind: adam, lr: 1e-3, betas: [0.9, 0.98]}}
  schedule: {{kind: cosine, warmup: 200}}
  validate_every: 250
evaluation: {{metrics: [cer], validate_examples: 200, show: 0}}
""",
    ),
    "translation": Task(
        "German to English (Multi30k); sentences of both languages restored from spans cut out of them",
        captions,
        f"""
{SUBWORDS}
data: {{split: {{dev: 0.01, test: 0.001}}}}
{SMALL}
task: {{source_noise: {{span: 0.35}}, label_smoothing: 0.1}}
batching: {{tokens: 4096}}
training:
  steps: 3000
  optimiser: {{kind: adam, lr: 1e-3, betas: [0.9, 0.98]}}
  schedule: {{kind: cosine, warmup: 400}}
evaluation: {{metrics: [bleu], validate_examples: 0, show: 0}}
""",
        "translation-transformer",
        f"""
{SUBWORDS}
{SMALL}
task: {{r_drop: 0}}
training: {{epochs: null, steps: 1500, schedule: {{kind: cosine, warmup: 200}}, validate_every: 250}}
evaluation: {{metrics: [{{kind: bleu, lowercase: true}}], validate_examples: 300, show: 0}}
""",
    ),
}


# --- measuring -------------------------------------------------------------------------------------------------------


def pretrained(task: Task, data: Path, folder: Path, device: str) -> tuple[Path, dict[str, object]]:
    """The run that learned the text, and what is to be told of it."""
    texts = task.text(data)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    raw = dict(parse_yaml(task.pretraining, "pretraining"))
    raw["data"] = {**block(raw["data"]), "train": {"path": str(folder / "text.txt"), "echo": True}}
    raw["runtime"] = {"device": device}
    done = train(recipe_from(raw, "pretraining"), folder / "pretrained", (), Wishes(tell=print))
    seconds = max(float(str(line["elapsed"])) for line in done.metrics)
    words = sum(len(text.split()) for text in texts)
    return done.folder, {"texts": len(texts), "words": words, "training_seconds": round(seconds, 1)}


def with_labels(task: Task, device: str) -> Recipe:
    """The recipe with the task's settings over its own, one block after the other."""
    raw = dict(read_yaml(RECIPES / f"{task.recipe}.yaml"))
    for name, value in parse_yaml(task.settings, "settings").items():
        raw[name] = {**block(raw[name]), **value} if isinstance(value, dict) and name != "model" else value
    raw["runtime"] = {"device": device}
    return recipe_from(raw, task.recipe)


def block(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def measured(name: str, wanted: argparse.Namespace, data: Path, runs: Path) -> dict[str, object]:
    task, device = TASKS[name], wanted.device
    start, told = pretrained(task, data, runs / name, device)
    portions, seeds = [float(one) / 100 for one in wanted.portions.split(",")], wanted.seeds
    gain = measure_gain(with_labels(task, device), runs / name / "gain", start, portions, seeds, said, part=wanted.part)
    found = gain.as_dict()
    recipe = f"recipes/{task.recipe}.yaml"
    return {
        "task": task.what,
        "recipe": recipe,
        "settings": task.settings.strip(),
        "pretraining": {**told, "recipe": task.pretraining.strip()},
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {**runtime.describe(), "load": round(os.getloadavg()[0], 1)},
        "device": device,
        **{key: found[key] for key in ("metric", "signature", "sentences", "seeds", "portions")},
    }


def said(label: str) -> Wishes:
    print(label, flush=True)
    return Wishes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", default="inflection,transliteration", help="tasks, between commas")
    parser.add_argument("--part", choices=["test", "dev"], default="test", help="what is judged; dev is only printed")
    parser.add_argument("--portions", default="1,10,100", help="of the labelled data, in %%")
    parser.add_argument("--seeds", type=parse_seeds, default=[1, 2, 3], metavar="1-3")
    parser.add_argument("--runs", type=Path, default=Path("runs/pretraining"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    data, runs, output = (path.absolute() for path in (arguments.data, arguments.runs, arguments.output))
    os.chdir(data)  # recipes name their data from there
    for name in arguments.only.split(","):
        found = measured(name, arguments, data, runs)
        if arguments.part == "test":
            results = json.loads(output.read_text()) if output.exists() else {}
            output.write_text(json.dumps({**results, name: found}, indent=1) + "\n")
        print(json.dumps(found["portions"], indent=1))


if __name__ == "__main__":
    main()
