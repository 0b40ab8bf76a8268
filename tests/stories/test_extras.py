"""Inflection: a stem and its tags become a form. The tags stand before the stem, or have an encoder of their own."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

import seqloom as library
from commands import Command

pytest_plugins = ["command_fixtures"]

ENDINGS = {"V;PST": "ed", "V;PRS;3": "s", "N;PL": "z"}
STEMS = [a + b + c for a in "abcdef" for b in "aeiou" for c in "abcdef"]
RECIPE = """
data:
  train: {{path: {data}, extras: {{tags: 2}}}}
  split: {{dev: 0.1, test: 0.1}}
source: {{tokenizer: characters}}
target: {{tokenizer: characters}}
extras:
  tags: {{tokenizer: {{kind: symbols, separator: ";"}}, use: {use}}}
model:
  source_embedding: {{width: 16}}
  target_embedding: {{width: 16}}
  encoder: {{width: 32, cell: gru}}
  decoder: {{kind: bahdanau, width: 32, cell: gru}}
batching: {{tokens: 256}}
training: {{steps: 200, validate_every: 200, optimiser: {{kind: adam, lr: 0.02}}}}
search: {{strategy: greedy}}
evaluation: {{metrics: [exact, cer], validate_examples: 20}}
runtime: {{device: cpu, threads: 1}}
"""
USES = ("prefix", "encoder")


@cache
def trained(use: str) -> Path:
    folder = Path(mkdtemp(prefix="seqloom-tests-"))
    rows = [f"{stem}\t{stem}{ending}\t{tags}\n" for stem in STEMS for tags, ending in ENDINGS.items()]
    (folder / "forms.tsv").write_text("".join(rows))
    (folder / "forms.yaml").write_text(RECIPE.format(data=folder / "forms.tsv", use=use))
    return library.train(folder / "forms.yaml", folder / "run").folder


@pytest.mark.parametrize("use", USES)
def test_the_tag_chooses_the_ending(use: str) -> None:
    model = library.load(trained(use))
    report = library.evaluate(model)
    assert report["exact"] >= 85, report
    asked = [{"source": stem, "tags": tags} for stem in ("bad", "fob", "cec") for tags in ENDINGS]
    right = [one["source"] + ENDINGS[one["tags"]] for one in asked]
    assert sum(found.text == wanted for found, wanted in zip(model(asked), right, strict=True)) >= 7
    assert model(asked[0]).text == model(asked)[0].text


@pytest.mark.parametrize("use", USES)
def test_the_order_of_tags_in_a_bag_does_not_matter(use: str) -> None:
    model = library.load(trained(use))
    one, other = model([{"source": "bad", "tags": "V;PST"}, {"source": "bad", "tags": "PST;V"}])
    assert (one.score == pytest.approx(other.score, abs=1e-5)) == (use == "encoder")


@pytest.mark.parametrize("use", USES)
def test_the_command_line_asks_in_columns_json_and_options(use: str, seqloom: Command, tmp_path: Path) -> None:
    run = trained(use)
    asked = [("bad", "V;PST"), ("", ""), ("fob", "N;PL")]
    expected = [one.text for one in library.load(run)([{"source": stem, "tags": tags} for stem, tags in asked])]
    columns = tmp_path / "in.tsv"
    columns.write_text("".join(f"{stem}\t{tags}\n" if stem else "\n" for stem, tags in asked))
    objects = tmp_path / "in.jsonl"
    records = [{"source": stem, "tags": tags.split(";")} if stem else {} for stem, tags in asked]
    objects.write_text("".join(json.dumps(record) + "\n" if record else "\n" for record in records))
    assert seqloom("predict", run, columns).out.split("\n") == [*expected, ""]
    assert seqloom("predict", run, objects, "--json-input").out.split("\n") == [*expected, ""]
    assert seqloom("predict", run, "--text", "bad", "--extra", "tags=V;PST").out == expected[0] + "\n"
    told = json.loads(seqloom("predict", run, "--text", "bad", "--extra", "tags=V;PST", "--json").out)
    assert (told["source"], told["extras"]) == ("bad", {"tags": "V;PST"})


def test_what_the_command_line_lacks_is_named(seqloom: Command, tmp_path: Path) -> None:
    run = trained("prefix")
    assert "also reads tags; --extra tags=TEXT" in seqloom("predict", run, "--text", "bad").refused("E_USAGE", 2)
    wrong = seqloom("predict", run, "--text", "bad", "--extra", "tag=V").refused("E_USAGE", 2)
    assert 'no such input (did you mean "tags"?)' in wrong
    twice = ["--extra", "tags=V", "--extra", "tags=N"]
    assert "tags is given twice" in seqloom("predict", run, "--text", "bad", *twice).refused("E_USAGE", 2)
    lines = tmp_path / "in.txt"
    lines.write_text("bad\tV\nfob\n")
    line = seqloom("predict", run, lines).refused("E_DATA", 3)
    assert f"{lines}:2" in line
    assert "expected: source, tags" in line
    with pytest.raises(library.SeqloomError, match="missing: tags"):
        library.load(run)("bad")
    long = tmp_path / "long.txt"
    long.write_text("bad\t" + ";".join(["V"] * 600) + "\n")
    assert "tags: 600 tokens, the recipe's maximum is 512" in seqloom("predict", run, long).refused("E_LONG", 3)


def test_the_other_commands_read_them_from_the_data(seqloom: Command, tmp_path: Path) -> None:
    """A bare file is read like the training data; another form is told."""
    run, other = trained("prefix"), trained("encoder")
    plain, turned = tmp_path / "plain.tsv", tmp_path / "turned.tsv"
    plain.write_text("bad\tbaded\tV;PST\nfob\tfobz\tN;PL\n")
    turned.write_text("V;PST\tbad\tbaded\nN;PL\tfob\tfobz\n")
    form = f"{{path: {turned}, columns: [1, 2], extras: {{tags: 0}}}}"
    for command in (["score", run], ["evaluate", run, "--json", "--data"], ["compare", run, other, "--json", "--data"]):
        first, second = seqloom(*command, plain), seqloom(*command, form)
        assert first.code == second.code == 0, first.err + second.err
        if command[0] == "score":
            assert first.out == second.out
    assert "missing: tags" in seqloom("score", run, "--source", plain, "--target", plain).refused("E_USAGE", 2)
    assert seqloom("evaluate", run, "--search-errors", "2").code == 0
    assert "tags prefix" in seqloom("info", run).out
    assert seqloom("check", run).code == 0
    drafted = seqloom("init", f"{{path: {plain}, extras: {{tags: 2}}}}", "--output", "-", "--quiet")
    assert 'tags: {tokenizer: {kind: symbols, separator: ";"}, use: prefix}' in drafted.out


def test_attention_names_the_tags_behind_the_source() -> None:
    asked = {"source": "bad", "tags": "V;PST"}
    found = library.load(trained("encoder")).explain(asked)
    assert found.source == ("b", "a", "d", "<eos>", "tags:V", "tags:PST", "tags:<eos>")
    assert found.weights.shape[-1] == 7
    found = library.load(trained("prefix")).explain(asked, "baded")
    assert found.source == ("tags:V", "tags:PST", "<sep>", "b", "a", "d", "<eos>")


def test_two_corpora_and_a_constant_tag_are_one_model(seqloom: Command, tmp_path: Path) -> None:
    """One recipe line per language: the same sources, other targets; the small corpus gets half of every epoch."""
    for name, ending, stems in (("x", "x", STEMS), ("y", "y", STEMS[::4])):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{stem}\t{stem}{ending}\n" for stem in stems))
    corpora = ", ".join(
        f"{{path: {tmp_path / name}.tsv, share: 0.5, constants: {{lang: <2{name}>}}}}" for name in ("x", "y")
    )
    text = RECIPE.format(data="DATA", use="prefix").replace("{path: DATA, extras: {tags: 2}}", f"[{corpora}]")
    (tmp_path / "r.yaml").write_text(text.replace("tags:", "lang:"))
    assert seqloom("check", tmp_path / "r.yaml").code == 0
    run = library.train(tmp_path / "r.yaml", tmp_path / "run").folder
    answers = library.load(run)([{"source": stem, "lang": f"<2{name}>"} for stem in ("bad", "fob") for name in "xy"])
    assert [one.text[-1:] for one in answers] == ["x", "y", "x", "y"]
    lines = tmp_path / "in.txt"
    lines.write_text("bad\nfob\n")
    said = seqloom("predict", run, lines, "--extra", "lang=<2y>").out.split()
    assert said == [answers[1].text, answers[3].text]
    assert library.evaluate(run).sentences > 10
    known = json.loads(seqloom("info", run, "--json").out)
    assert [Path(path).name for path in known["data"]["train"]] == ["x.tsv", "y.tsv"]
