"""A person judges, compares, scores and averages: the commands as they are typed, on a run of seconds."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from seqloom.api.evaluate import evaluate
from seqloom.api.frequencies import TrainingWords
from seqloom.api.load import load
from seqloom.api.testset import held_out
from seqloom.cli.main import run
from seqloom.data.readers import Example


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, object]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def seqloom(capsys: pytest.CaptureFixture[str]):
    def call(*arguments: object) -> Said:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="module")
def weaker(tiny_recipe: Path, tiny_run: Path) -> Path:
    """A run of the same recipe that stopped early."""
    from seqloom.api.train import train

    return train(tiny_recipe, tiny_recipe.parent / "weaker", ["training.epochs=2"]).folder


@pytest.fixture(scope="module")
def files(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's test set as a parallel corpus with two references, and as a TSV."""
    folder = tmp_path_factory.mktemp("files")
    examples = held_out(load(tiny_run).recipe)
    (folder / "src").write_text("".join(e.source + "\n" for e in examples))
    (folder / "ref").write_text("".join(e.target + "\n" for e in examples))
    (folder / "ref2").write_text("".join("or " + e.target + "\n" for e in examples))
    (folder / "test.tsv").write_text("".join(f"{e.source}\t{e.target}\n" for e in examples))
    return folder


# --- evaluate ------------------------------------------------------------------------------------------------------


def test_a_run_folder_is_enough(seqloom, tiny_run: Path) -> None:
    said = seqloom("evaluate", tiny_run)
    assert said.code == 0
    assert said.err == f"report: {tiny_run / 'report.html'}\n"
    for text in ("exact match", "BLEU", "95 % interval", "perplexity", "nrefs:1", "by source length (words)"):
        assert text in said.out
    for text in ("times seen", "Expected calibration error", "sentences/s", "target tokens/s"):
        assert text in said.out


def test_json_holds_everything(seqloom, tiny_run: Path) -> None:
    report = seqloom("evaluate", tiny_run, "--json").json
    scores = {score["metric"]: score for score in report["scores"]}
    assert list(scores) == ["exact", "bleu"]
    assert scores["exact"]["interval"]["low"] <= scores["exact"]["value"] <= scores["exact"]["interval"]["high"]
    assert scores["exact"]["value"] > 50, "the fixture learns its task"
    assert sum(bucket["count"] for bucket in report["by_length"]["BLEU"]) == report["sentences"]
    decoding = report["decoding"]
    assert decoding["search"] == "beam 5"
    assert decoding["confidence"]["right"] == pytest.approx(scores["exact"]["value"] / 100)
    assert sum(row["count"] for row in decoding["confidence"]["bins"]) == report["sentences"]
    assert report["perplexity"] >= 1


def test_the_same_test_set_by_other_names_gives_the_same_numbers(seqloom, tiny_run: Path, files: Path) -> None:
    whole = seqloom("evaluate", tiny_run, "--json").json
    for given in (
        ["--data", files / "test.tsv"],
        ["--source", files / "src", "--reference", files / "ref"],
        ["--data", f"{{source: {files / 'src'}, target: {files / 'ref'}}}"],
    ):
        report = seqloom("evaluate", tiny_run, *given, "--json").json
        for key in ("sentences", "perplexity", "scores", "by_length", "by_frequency"):
            assert report[key] == whole[key]
    two = seqloom("evaluate", tiny_run, "--source", files / "src", "--reference", files / "ref", "--reference",
                  files / "ref2", "--metric", "bleu", "--json").json  # fmt: skip
    assert "nrefs:2" in two["scores"][0]["signature"]
    dev = seqloom("evaluate", tiny_run, "--part", "dev", "--json").json
    assert dev["sentences"] != whole["sentences"]


def test_an_output_file_needs_no_run(seqloom, tiny_run: Path, files: Path, tmp_path: Path) -> None:
    written = tmp_path / "out.txt"
    whole = seqloom("evaluate", tiny_run, "--write-outputs", written, "--json").json
    alone = seqloom("evaluate", "--outputs", written, "--reference", files / "ref", "--metric", "exact", "--metric",
                    "bleu", "--json").json  # fmt: skip
    assert alone["scores"] == whole["scores"]
    assert alone["by_length"] == {}
    beside = seqloom("evaluate", tiny_run, "--outputs", written, "--json").json
    assert (beside["scores"], beside["by_frequency"]) == (whole["scores"], whole["by_frequency"])
    assert beside["decoding"] is None


def test_metrics_are_chosen_on_the_line(seqloom, tiny_run: Path) -> None:
    report = seqloom(
        "evaluate", tiny_run, "--metric", "bleu", "--metric", "bleu:order=2", "--metric", "wer", "--json"
    ).json
    assert [score["name"] for score in report["scores"]] == ["BLEU", "BLEU-2", "WER"]


def test_searches_side_by_side(seqloom, tiny_run: Path) -> None:
    said = seqloom("evaluate", tiny_run, "--search", "greedy,beam=4")
    assert "run, greedy" in said.out
    assert "F1 run, beam 4" in said.out
    report = seqloom("evaluate", tiny_run, "--search", "greedy,beam=4", "--json").json
    assert [report["decoding"]["search"], report["others"][0]["decoding"]["search"]] == ["greedy", "beam 4"]
    assert report["others"][0]["by_frequency"]


def test_plots_are_written(seqloom, tiny_run: Path, weaker: Path, tmp_path: Path) -> None:
    said = seqloom("evaluate", tiny_run, "--against", weaker, "--plot", tmp_path / "a b" / "plots")
    assert said.code == 0
    names = {path.name for path in (tmp_path / "a b" / "plots").iterdir()}
    assert names == {
        "by-length-exact.png",
        "by-length-bleu.png",
        "by-frequency.png",
        "reliability-1.png",
        "reliability-2.png",
    }
    assert all((tmp_path / "a b" / "plots" / name).read_bytes().startswith(b"\x89PNG") for name in names)
    assert "run against weaker" in said.out


@pytest.mark.parametrize(
    ("gate", "code"),
    [("exact=1", 0), ("exact=100.5", 7), ("BLEU=1", 0), ("perplexity=1000", 0), ("perplexity=0.5", 7)],
)
def test_the_quality_gate(seqloom, tiny_run: Path, gate: str, code: int) -> None:
    said = seqloom("evaluate", tiny_run, "--fail-under", gate, "--json")
    assert said.code == code
    assert said.json["sentences"], "the report is there all the same"
    assert ("E_QUALITY" in said.err) == (code == 7)


def test_the_gate_of_an_error_rate_is_an_upper_bound(seqloom, tiny_run: Path) -> None:
    assert seqloom("evaluate", tiny_run, "--metric", "wer", "--fail-under", "wer=99").code == 0
    said = seqloom("evaluate", tiny_run, "--metric", "wer", "--fail-under", "wer=-1")
    assert said.code == 7
    assert "is over -1" in said.err


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["RUN", "--metric", "blue"], 2, "did you mean"),
        (["RUN", "--fail-under", "chrf=3"], 2, "is not measured"),
        (["RUN", "--fail-under", "exact"], 2, "METRIC=VALUE"),
        (["RUN", "--search", "beem=3"], 2, "did you mean"),
        (["RUN", "--beam", "0"], 2, "beam"),
        (["RUN", "--beam", "3", "--greedy"], 2, "--greedy"),
        (["RUN", "RUN"], 2, "--ensemble"),
        (["RUN", "--data", "x.tsv", "--reference", "y"], 2, "give one"),
        (["RUN", "--data", "missing.tsv"], 6, "missing.tsv"),
        (["RUN", "--outputs", "missing.txt"], 6, "missing.txt"),
        (["RUN", "--write-outputs", "-"], 2, "stdout"),
        (["missing"], 6, "no such run"),
        ([], 2, "--outputs"),
        (["--outputs", "out.txt"], 2, "--reference"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    seqloom, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = seqloom("evaluate", *[str(tiny_run) if argument == "RUN" else argument for argument in arguments])
    assert said.code == code
    assert word in said.err
    assert said.err.startswith("seqloom: error[E_")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_data_that_is_gone_is_asked_for(seqloom, tiny_run: Path, files: Path, tmp_path: Path) -> None:
    """A bundle that travelled to another machine still judges what it is given."""
    shutil.copytree(tiny_run / "bundle", tmp_path / "bundle")
    _swap(tmp_path / "bundle", "pairs.tsv", "elsewhere.tsv")
    said = seqloom("evaluate", tmp_path / "bundle")
    assert said.code == 6
    assert "--data" in said.err
    assert seqloom("evaluate", tmp_path / "bundle", "--data", files / "test.tsv", "--json").json["by_frequency"]


def _swap(bundle: Path, old: str, new: str) -> None:
    """Change a word of the bundle's recipe, and the card with it."""
    import hashlib

    recipe, card = bundle / "recipe.yaml", bundle / "card.json"
    recipe.write_text(recipe.read_text().replace(old, new))
    raw = json.loads(card.read_text())
    data = recipe.read_bytes()
    raw["files"]["recipe.yaml"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    card.write_text(json.dumps(raw))


def test_equal_sources_are_one_item_where_the_recipe_says_so(tiny_run: Path) -> None:
    model = load(tiny_run, settings=["evaluation.merge_sources=true"])
    said = model("ant bee").text
    pairs = [
        Example("ant bee", ("wrong",), "f", 1),
        Example("ant bee", (said,), "f", 2),
        Example("cat", ("x",), "f", 3),
    ]
    report = evaluate(model, pairs, metrics=["exact"])
    assert report.sentences == 2
    assert report["exact"] == 50.0


def test_long_and_empty_sources_are_counted(seqloom, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("ant bee\tbee ant\n" + "ant " * 600 + "\tx\n" + "\tempty\n")
    report = seqloom("evaluate", tiny_run, "--data", tmp_path / "t.tsv", "--json").json
    assert (report["sentences"], report["decoding"]["skipped"]) == (3, 2)
    assert seqloom("evaluate", tiny_run, "--data", tmp_path / "t.tsv", "--on-long", "error").code == 3


def test_frequencies_are_those_of_the_training_targets(tiny_run: Path) -> None:
    """From the vocabulary, or counted from the data where the vocabulary is cut: the same numbers."""
    whole = TrainingWords.of(load(tiny_run))
    counted = TrainingWords.of(load(tiny_run, settings=["target.vocabulary.max_size=100"]))
    assert whole is not None
    assert counted is not None
    assert whole.counts == counted.counts
    assert whole.counts["ant"] > whole.counts["hen"] > 0
    (row,) = [row for row in whole.accuracy(["yak ant"], [["yak bee", "yak ant"]]) if row.label == "0"]
    assert (row.wanted, row.produced, row.matched) == (1, 1, 1)


def test_python_says_the_same(tiny_run: Path, seqloom) -> None:
    report = evaluate(tiny_run)
    assert report["exact"] == seqloom("evaluate", tiny_run, "--json").json["scores"][0]["value"]
    assert "exact match" in repr(report)


# --- compare -------------------------------------------------------------------------------------------------------


def test_compare_finds_the_better_run(seqloom, tiny_run: Path, weaker: Path) -> None:
    said = seqloom("compare", weaker, tiny_run)
    assert said.code == 0
    assert "exact match: B (run) is better" in said.out
    assert "Sentences that differ most" in said.out
    report = seqloom("compare", tiny_run, weaker, "--json", "--show", "2").json
    first = report["metrics"][0]
    assert (first["better"], first["randomisation"]["test"]) == ("a", "approximate randomisation")
    assert first["wins"]["a"] + first["wins"]["b"] + first["wins"]["ties"] == report["sentences"]
    assert len(report["contrasts"]) == 2
    assert report["notes"] == []


def test_compare_takes_output_files(seqloom, tiny_run: Path, files: Path, tmp_path: Path) -> None:
    seqloom("evaluate", tiny_run, "--write-outputs", tmp_path / "out.txt")
    against_itself = seqloom("compare", tiny_run, tmp_path / "out.txt", "--json").json
    assert all(row["randomisation"]["difference"] == 0 for row in against_itself["metrics"])
    alone = seqloom("compare", tmp_path / "out.txt", files / "src", "--reference", files / "ref", "--json")
    assert alone.json["metrics"][0]["better"] == "a"
    assert seqloom("compare", tmp_path / "out.txt", files / "src").code == 2
    (tmp_path / "short.txt").write_text("one line\n")
    assert seqloom("compare", tiny_run, tmp_path / "short.txt").code == 3


def test_compare_warns_of_another_split(seqloom, tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run / "bundle", tmp_path / "other")
    _swap(tmp_path / "other", "seed: 1", "seed: 2")
    assert "Caution" in seqloom("compare", tiny_run, tmp_path / "other").out


# --- score ---------------------------------------------------------------------------------------------------------


def test_score_prints_a_line_per_pair(seqloom, tiny_run: Path, files: Path) -> None:
    said = seqloom("score", tiny_run, files / "test.tsv")
    lines = [tuple(map(float, line.split("\t"))) for line in said.out.splitlines()]
    report = seqloom("evaluate", tiny_run, "--json").json
    assert len(lines) == report["sentences"]
    assert f"perplexity {report['perplexity']:.4f}" in said.err
    parallel = seqloom("score", tiny_run, "--source", files / "src", "--target", files / "ref")
    assert parallel.out == said.out
    records = [json.loads(line) for line in seqloom("score", tiny_run, files / "test.tsv", "--json").out.splitlines()]
    for (log_prob, perplexity), record in zip(lines, records, strict=True):
        assert record["log_prob"] == pytest.approx(log_prob, abs=1e-5)
        assert record["perplexity"] == pytest.approx(perplexity, rel=1e-4)
        assert sum(record["token_scores"]) == pytest.approx(log_prob, abs=1e-5)
    tokens = seqloom("score", tiny_run, files / "test.tsv", "--tokens").out.splitlines()
    assert len(tokens) == sum(len(record["tokens"]) for record in records)


def test_the_right_answer_is_likelier(tiny_run: Path) -> None:
    right, wrong = load(tiny_run).score([("ant bee cat", "cat bee ant"), ("ant bee cat", "ant bee cat")])
    assert right.log_prob > wrong.log_prob


def test_score_refuses_what_it_cannot_score(seqloom, tiny_run: Path, files: Path, tmp_path: Path) -> None:
    (tmp_path / "long.tsv").write_text("a\tb\n" + "ant " * 600 + "\tx\n")
    said = seqloom("score", tiny_run, tmp_path / "long.tsv")
    assert said.code == 3
    assert "long.tsv:2" in said.err
    assert seqloom("score", tiny_run, "--source", files / "src").code == 2
    (tmp_path / "one.tsv").write_text("no tab\n")
    assert seqloom("score", tiny_run, tmp_path / "one.tsv").code == 3


# --- average -------------------------------------------------------------------------------------------------------


def test_average_makes_a_bundle_and_leaves_the_run_alone(seqloom, tiny_run: Path, tmp_path: Path) -> None:
    before = (tiny_run / "bundle" / "card.json").read_bytes()
    said = seqloom("average", tiny_run, "--last", "2", "--output", tmp_path / "mean", "--json")
    assert said.code == 0
    report = said.json
    assert len(report["checkpoints"]) == 2
    card = json.loads((tmp_path / "mean" / "card.json").read_text())["about"]
    assert card["averaged"] == report["checkpoints"]
    assert card["validation"] == report["after"] != report["before"]
    old = json.loads(before)["about"]
    assert report["before"]["nll"] == pytest.approx(old["validation"]["nll"], abs=1e-4)
    assert card["calibration"] != old["calibration"]
    assert (tiny_run / "bundle" / "card.json").read_bytes() == before
    assert "--data" in seqloom("evaluate", tmp_path / "mean").err, "a bundle away from its run knows no folders"
    copy = shutil.copytree(tiny_run, tmp_path / "copy")
    assert seqloom("average", copy, "--last", "2").code == 0
    assert seqloom("evaluate", copy / "averaged").code == 0


def test_an_average_is_the_mean(seqloom, tiny_run: Path, tmp_path: Path) -> None:
    from seqloom.training import checkpoints

    names = [path.name for path in checkpoints.every(tiny_run)][-2:]
    assert seqloom("average", tiny_run, *names, "--output", tmp_path / "mean").code == 0
    parts = [checkpoints.load_weights(tiny_run / "checkpoints" / name) for name in names]
    mean = load(tmp_path / "mean").network.state_dict()
    for name, tensor in parts[0].items():
        assert mean[name].allclose((tensor + parts[1][name]) / 2, atol=1e-6)


@pytest.mark.parametrize(
    "arguments", [["--last", "1"], ["--last", "99"], ["7"], ["--last", "2", "5"], ["--output", "B"]]
)
def test_averages_that_make_no_sense_are_refused(seqloom, tiny_run: Path, arguments: list[str]) -> None:
    given = [str(tiny_run / "bundle") if argument == "B" else argument for argument in arguments]
    said = seqloom("average", tiny_run, *given)
    assert said.code == 2
    assert said.err.startswith("seqloom: error[E_USAGE]")


def test_in_python_a_data_file_is_named_as_on_the_command_line(tiny_run: Path, files: Path) -> None:
    by_name, by_examples = evaluate(tiny_run, files / "test.tsv"), evaluate(tiny_run)
    assert {kind: score.value for kind, score in by_name.scores.items()} == {
        kind: score.value for kind, score in by_examples.scores.items()
    }
