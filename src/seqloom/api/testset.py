"""What outputs are judged on, and by: test examples, output files of any tool, and metrics as people write them.

Examples come from a recipe's held-out part, a data file, or parallel files of references. This file reads; it judges
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from seqloom.api.datasets import Datasets, merged
from seqloom.config import Settings, override, parse_yaml, validated
from seqloom.data.readers import Example, ReaderSettings, dataset_settings, read, read_sources
from seqloom.data.split import Part
from seqloom.errors import SeqloomError
from seqloom.metrics import METRICS, Metric
from seqloom.recipe import Recipe

ELSEWHERE = "name other data: --data FILE, or --source FILE --reference FILE"
OTHER_DATA = "was trained on other data or another split: it may have seen sentences of this test set"
MetricSpec = str | Settings  # "bleu", "bleu:order=2,lowercase=true", or a metric's settings


def held_out(recipe: Recipe, part: Part = "test") -> list[Example]:
    """A part of the recipe's own data; by default the test set that training never saw."""
    datasets = Datasets(recipe.data)
    readers = {"train": datasets.train, "dev": datasets.dev, "test": datasets.test}
    try:
        examples = list(readers[part]())
    except SeqloomError as error:
        if error.code != "E_FILE":
            raise
        raise SeqloomError("E_FILE", f"the recipe's data: {error.what}", where=error.where, fix=ELSEWHERE) from None
    files = recipe.data.files().get(part)
    if not examples and not files:
        raise SeqloomError("E_EMPTY", f"the recipe holds out no {part} set", fix=ELSEWHERE)
    return _some(examples, f"data.{part}" + (f": {', '.join(files)}" if files else ""))


def chosen_examples(
    recipe: Recipe | None,
    data: str | None = None,
    source: str | None = None,
    references: Sequence[str] = (),
    part: Part = "test",
    needs_sources: bool = False,
) -> list[Example]:
    """What a command line names: a data file, parallel files, or else a part of the recipe's own data."""
    if data is not None and (source is not None or references):
        raise SeqloomError("E_USAGE", "--data and --source/--reference both name the data", fix="give one of them")
    if needs_sources and references and source is None:
        raise SeqloomError(
            "E_USAGE", "references without sources: a run has nothing to answer", fix="add --source FILE"
        )
    if data is not None:
        return from_spec(data, recipe)
    if source is not None or references:
        return from_files(source, references)
    if recipe is None:
        raise SeqloomError("E_USAGE", "nothing to judge against", fix=ELSEWHERE)
    return held_out(recipe, part)


def from_spec(spec: str, recipe: Recipe | None = None) -> list[Example]:
    """Examples of a data file (`x.tsv`, `x.jsonl.gz`, `-`) or a reader's settings: `{path: x.tsv, columns: [1, 0]}`."""
    return _some(list(read_like(recipe, named_dataset(spec, "--data", recipe))), spec)


def read_like(recipe: Recipe | None, settings: ReaderSettings) -> Iterator[Example]:
    """Examples whose sources are what the recipe's are: texts, or files that lines name."""
    return read(settings, in_files=recipe is not None and recipe.data.in_files)


def named_dataset(spec: str | Mapping[str, object], where: str, recipe: Recipe | None = None) -> ReaderSettings:
    """A dataset as a command line names it; a bare file of a run with extras is read like its training data."""
    text = spec if isinstance(spec, str) else None
    raw = parse_yaml(text, where) if text is not None and text.lstrip().startswith("{") else spec
    try:
        settings = dataset_settings(raw)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise SeqloomError("E_USAGE", problems, where=f"{where} {spec}") from None
    except ValueError as error:
        raise SeqloomError("E_USAGE", str(error), where=f"{where} {spec}") from None
    if not isinstance(raw, str) or recipe is None:
        return settings
    if recipe.model.continues and settings.kind == "tsv" and not raw.lower().removesuffix(".gz").endswith(".tsv"):
        return dataset_settings({"kind": "text", "path": raw})
    return _like_training(settings, recipe)


def _like_training(settings: ReaderSettings, recipe: Recipe) -> ReaderSettings:
    """The same file with the columns or keys of the training data, where these all have the same."""
    left_out = {"path", "share", "importance", "weight", "alignment"}
    forms = [one.model_dump(mode="json", exclude=left_out) for one in recipe.data.sets["train"]]
    if not recipe.extras or any(form != forms[0] for form in forms) or forms[0]["kind"] != settings.kind:
        return settings
    return dataset_settings({**settings.model_dump(mode="json"), **forms[0]})


def from_files(source: str | None, references: Sequence[str]) -> list[Example]:
    """Examples of parallel files, line by line. Without a source file every source is empty: its length is unknown."""
    if not references:
        raise SeqloomError("E_USAGE", "no references", fix="--reference FILE, once for every reference")
    settings = dataset_settings({"source": source or references[0], "target": list(references)})
    examples: Iterator[Example] = read(settings)
    if source is None:
        examples = (replace(example, source="") for example in examples)
    return _some(list(examples), ", ".join(references))


def _some(examples: list[Example], where: str) -> list[Example]:
    """The examples; E_EMPTY where there is nothing that an output could be judged by."""
    if not examples:
        raise SeqloomError("E_EMPTY", "nothing to judge: the file holds no pairs", where=where)
    if not any(text.strip() for example in examples for text in example.references):
        what = f"nothing to judge by: all {len(examples):,} references are empty"
        raise SeqloomError("E_EMPTY", what, where=where, fix="look at the data with 'seqloom check'")
    return examples


def same_data(one: Recipe, other: Recipe) -> bool:
    """Whether two runs saw the same training set, and hold out the same sentences."""
    kept = [recipe.data.model_dump(mode="json", include={"train", "dev", "test", "split"}) for recipe in (one, other)]
    return kept[0] == kept[1]


def has_sources(examples: Sequence[Example]) -> bool:
    return any(example.source for example in examples)


def prepared(examples: Sequence[Example], recipe: Recipe | None) -> list[Example]:
    """The examples as the recipe counts them: equal sources are one item with several references, where it says so."""
    merges = recipe is not None and recipe.evaluation.merge_sources and has_sources(examples)
    return merged(iter(examples)) if merges else list(examples)


def read_outputs(path: str) -> list[str]:
    """The outputs of any tool: a text file, one output per line."""
    return list(read_sources(path))


def aligned(
    outputs: Sequence[str], examples: Sequence[Example], recipe: Recipe | None, name: str
) -> tuple[list[str], list[Example]]:
    """Outputs beside the examples they answer: one per line of the test set, or one per different source.

    Where the recipe merges equal sources, the output for the first of them stands; the others are not looked at.
    """
    joint = merged(iter(examples)) if has_sources(examples) else list(examples)
    merges = len(prepared(examples, recipe)) < len(examples)
    if len(outputs) == len(joint) < len(examples):
        return list(outputs), joint
    if len(outputs) == len(examples):
        if not merges:
            return list(outputs), list(examples)
        first: dict[tuple[str, ...], str] = {}
        for output, example in zip(outputs, examples, strict=True):
            first.setdefault(example.key, output)
        return list(first.values()), joint
    different = f" ({len(joint):,} different sources)" if len(joint) < len(examples) else ""
    what = f"{len(outputs):,} outputs for {len(examples):,} test examples{different}"
    raise SeqloomError("E_ALIGN", what, where=name, fix="give one output per line of the test set")


# --- metrics -----------------------------------------------------------------------------------------------------


def metric_settings(spec: MetricSpec) -> Settings:
    """`bleu`, or `bleu:order=2,lowercase=true`: a kind of the table of metrics, and its own keys."""
    if not isinstance(spec, str):
        return spec
    kind, _, rest = spec.partition(":")
    raw = override({"kind": kind}, split_outside_brackets(rest) if rest else ())
    try:
        settings_class = METRICS.settings_class(kind)
    except ValueError as error:
        raise SeqloomError("E_USAGE", str(error), where=f"metric {spec!r}") from None
    return validated(settings_class, raw, f"metric {spec!r}")


def metrics_of(specs: Sequence[MetricSpec] | None, recipe: Recipe | None) -> dict[str, Metric]:
    """The metrics asked for, or the recipe's, or BLEU and chrF; each under the word a person calls it by."""
    default: Sequence[MetricSpec] = recipe.evaluation.metrics if recipe is not None else ("bleu", "chrf")
    found: dict[str, Metric] = {}
    for spec in specs or default:
        settings = metric_settings(spec)
        metric = METRICS.build(settings)
        if metric.name in [known.name for known in found.values()]:
            raise SeqloomError("E_USAGE", f"{metric.name} is asked for twice", where=str(spec))
        kind = str(settings.model_dump()["kind"])
        found[kind if kind not in found else metric.name] = metric
    return found


def split_outside_brackets(text: str) -> list[str]:
    """Split at commas that stand in no bracket and no quotes: `1,[2,3]` is `1` and `[2,3]`."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        if character == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
