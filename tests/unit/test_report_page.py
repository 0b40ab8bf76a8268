"""The report: what is gathered for it, that it stays small, and that no text of a user changes its structure."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import Command, trained, write_recipe
from reports import judged, made_report
from seqloom.api.curves import MOST_POINTS, best_step, curves
from seqloom.api.evaluate import Judge
from seqloom.api.load import load
from seqloom.api.options import Options
from seqloom.api.report import Limits, gathered, report, some, write_report
from seqloom.api.testset import held_out
from seqloom.api.train import train
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
from seqloom.data.tokenizers import Characters
from seqloom.models.generator import Generator
from seqloom.models.model import MODELS
from seqloom.probe.explain import Forced, explained
from seqloom.probe.glimpse import Read, glimpsed, in_passing
from seqloom.probe.report import MOST_BYTES, Report, report_page
from seqloom.probe.telling import Judged, telling

pytest_plugins = ["command_fixtures"]

NASTY = ["</script><script>alert(1)</script>", "<!--<script>", "&lt;b&gt;", "\u2028\x00\x1b[2J", "\ud800", "'\"`${1}\\"]


class Parsed(HTMLParser):
    """The tags of a file, and what stands inside of its scripts, styles and title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.inside: dict[str, str] = {}
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        values = dict(attrs)
        self._open = "data" if values.get("id") == "data" else tag
        if values.get("http-equiv") == "Content-Security-Policy":
            self.inside["policy"] = values["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside[self._open] = self.inside.get(self._open, "") + data


def payload(text: str) -> dict[str, object]:
    found = json.loads(Parsed(text).inside["data"])
    assert isinstance(found, dict)
    return found


def answers(text: str) -> list[dict[str, object] | None]:
    return payload(text)["answers"]  # type: ignore[return-value]


# --- text is text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", NASTY)
def test_no_text_changes_the_structure_and_every_text_arrives(text: str) -> None:
    harmless, found = (report_page(made_report(text=one, systems=("a", "b"))) for one in ("x", text))
    assert Parsed(found).tags == Parsed(harmless).tags
    told = payload(found)["report"]
    assert told["sentences"][0]["source"] == text  # type: ignore[index]
    assert told["systems"][1]["name"] == text  # type: ignore[index]
    assert told["data"]["findings"][0]["where"] == [text]  # type: ignore[index]
    assert payload(found)["notes"] == [text]
    assert isinstance(found.encode("utf-8"), bytes)


@settings(max_examples=20, deadline=None)
@given(st.text(st.characters(), min_size=1, max_size=30))
def test_any_text_stays_text(text: str) -> None:
    assert Parsed(report_page(made_report(2, text))).tags == Parsed(report_page(made_report(2, "x"))).tags


def test_only_its_own_script_and_style_may_work() -> None:
    found = Parsed(report_page(made_report()))
    policy = dict(part.strip().split(" ", 1) for part in found.inside["policy"].split(";"))

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == hashed(found.inside["script"])
    assert policy["style-src"] == hashed(found.inside["style"])


def test_nothing_is_asked_for_and_no_data_becomes_markup() -> None:
    static = resources.files("seqloom.probe") / "static"
    text = "".join((static / name).read_text("utf-8") for name in ("view.js", "maps.js", "report.js", "report.css"))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import", text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|fetch\(|XMLHttp", text
    )
    assert not re.search(r"<(?:link|img|iframe|object|embed)|\ssrc=", report_page(made_report()).split("<script", 1)[0])


def test_readers_without_scripts_get_scores_and_the_best_and_worst() -> None:
    found = report_page(made_report(20)).split("<noscript>")[1].split("</noscript>")[0]
    assert "run: BLEU 30.00" in found
    assert "BLEU 19.0" in found
    assert "BLEU 0.0" in found
    assert "BLEU 10.0" not in found


def test_numbers_beyond_all_numbers_are_missing_and_not_wrong() -> None:
    odd = replace(made_report(2), sentences=(replace(judged(0), value=float("nan"), sureness=-float("inf")),))
    told = payload(report_page(odd))["report"]["sentences"][0]  # type: ignore[index]
    assert told["value"] is None
    assert told["sureness"] is None


def test_best_and_worst_go_by_the_metric_s_direction_and_longer_ones_come_first() -> None:
    told = made_report(20).as_dict()
    assert told["best"] == [19, 18, 17, 16, 15, 14]
    assert told["worst"] == [0, 1, 2, 3, 4, 5]
    less = replace(made_report(20), higher_is_better=False).as_dict()
    assert (less["best"], less["worst"]) == (told["worst"], told["best"])
    equal = replace(made_report(4), sentences=tuple(replace(judged(place), value=1.0) for place in range(4)))
    assert (equal.as_dict()["best"], equal.as_dict()["worst"]) == ([3, 2], [])
    assert made_report(1).as_dict()["best"] == [0]


# --- how large it may be -------------------------------------------------------------------------------------------


def test_a_thousand_sentences_stay_under_five_megabytes() -> None:
    many = made_report(1000, tokens=24)
    closely = tuple(replace(one, why=("among the best",)) if i < 50 else one for i, one in enumerate(many.sentences))
    text = report_page(replace(many, sentences=closely))
    assert len(text.encode()) < MOST_BYTES
    found = answers(text)
    assert all(one is not None for one in found)
    whole = [one for one in found if one is not None and one.get("tree") is not None]
    assert len(whole) == 50
    assert all(one["attention"]["source"]["shape"][:2] == [2, 3] for one in whole)  # type: ignore[index]
    assert found[60]["glimpse"] is True  # type: ignore[index]
    assert found[60]["attention"]["source"]["shape"] == [1, 1, 24, 24]  # type: ignore[index]


def test_what_has_no_room_loses_its_heads_first_then_its_map_and_never_its_text() -> None:
    full = made_report(12, tokens=40)
    sizes, seen = [], []
    bare = len(report_page(full, 0))
    for more in (0, 8_000, 60_000, 120_000, 2_000_000):
        text = report_page(full, bare + more)
        sizes.append(len(text))
        found = answers(text)
        seen.append((sum(one is not None for one in found), sum(bool(one and one["tree"]) for one in found)))
        assert len(text) <= bare + max(more, 0)
        assert [one["source"] for one in payload(text)["report"]["sentences"]] == [  # type: ignore[index]
            f"sentence {place}" for place in range(1, 13)
        ]
    assert seen[0] == (0, 0)
    assert seen[-1] == (12, 2)
    assert sizes == sorted(sizes)
    assert 0 < seen[1][0] < 12
    assert seen[1][1] == 0


# --- which sentences tell most -------------------------------------------------------------------------------------


def many_judged(count: int = 40) -> list[Judged]:
    """Quality rises with the place; every tenth is a search error; sureness goes up and down."""
    return [Judged(float(i), -float((i * 7) % count), i % 5, 1.0 + i if i % 10 == 5 else 0.0) for i in range(count)]


def test_every_reason_has_its_share() -> None:
    found = telling(many_judged(), 12)
    assert len(found) == 12
    reasons = [why for all_of_them in found.values() for why in all_of_them]
    for why in ("search error", "among the worst", "among the best", "among the least sure"):
        assert reasons.count(why) >= 3, why
    assert {0, 1, 39, 38, 35} <= set(found)  # the worst, the best, and the largest search error


def test_nobody_is_both_best_and_worst_and_few_are_all_chosen() -> None:
    for count in (1, 2, 3, 9):
        found = telling(many_judged(count), 50)
        assert sorted(found) == list(range(count))
        if count > 1:
            assert not any({"among the best", "among the worst"} <= set(why) for why in found.values()) or count % 2


def test_what_was_passed_over_tells_nothing() -> None:
    judged_ones = [replace(one, sureness=None) if i < 5 else one for i, one in enumerate(many_judged(20))]
    assert min(telling(judged_ones, 50)) == 5
    assert telling([], 50) == {}
    assert telling(many_judged(), 0) == {}


def test_some_are_always_the_same_and_in_order() -> None:
    assert some(5, 10) == [0, 1, 2, 3, 4]
    few = some(1000, 10)
    assert few == sorted(few) == some(1000, 10)
    assert len(set(few)) == 10


# --- many outputs at once are what each is alone -------------------------------------------------------------------

CODEC = TextCodec.train(TextCodec.Settings(tokenizer=Characters.Settings()), lambda: ["abc def", "ghi"], seed=1)
NARROW = TextCodec.train(TextCodec.Settings(tokenizer=Characters.Settings()), lambda: ["abc "], seed=1)
SIZES = {"source_embedding": {"width": 8}, "target_embedding": {"width": 8}}
STACK = {"kind": "transformer", "width": 16, "layers": 2, "heads": 2, "feedforward": 32}
NETWORKS: dict[str, dict[str, object]] = {
    "luong": {**SIZES, "encoder": {"width": 16}, "decoder": {"kind": "luong", "width": 16}},
    "bahdanau": {**SIZES, "encoder": {"width": 16}, "decoder": {"kind": "bahdanau", "width": 16}},
    "transformer": {**SIZES, "encoder": STACK, "decoder": STACK},
    "convolution": {
        **SIZES,
        "encoder": {"kind": "convolution", "width": 16},
        "decoder": {"kind": "luong", "width": 16},
    },
    "monotonic": {**SIZES, "encoder": {"width": 16}, "decoder": {"kind": "monotonic", "width": 16}},
    "one vector": {**SIZES, "encoder": {"width": 16}, "decoder": {"kind": "rnn", "width": 16}},
    "joint": {"kind": "joint", "embedding": {"width": 16}, "decoder": STACK},
    "extras": {**SIZES, "encoder": {"width": 16}, "decoder": {"kind": "bahdanau", "width": 16}},
    "copy": {**SIZES, "encoder": {"width": 16}, "decoder": {"kind": "luong", "width": 16}, "head": "copy"},
}


def made_network(name: str) -> tuple[Generator, Codecs]:
    torch.manual_seed(3)
    chosen = MODELS.settings({"kind": "encoder_decoder", **NETWORKS[name]})
    extras = {}
    codecs = Codecs(CODEC, CODEC)
    if name == "extras":
        from seqloom.models.memories import ExtraSource

        extras = {"extras": {"tags": (ExtraSource.Settings.model_validate({}), len(CODEC.vocabulary))}}
        codecs = Codecs(CODEC, CODEC, {"tags": CODEC})
    if name == "copy":
        codecs = Codecs(CODEC, NARROW, copies=True)
    sizes = {"source_vocabulary": len(CODEC.vocabulary), "target_vocabulary": len(codecs.target.vocabulary)}
    built = MODELS.build(chosen, **sizes, **extras).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(2)
    return built, codecs


@pytest.mark.parametrize("name", NETWORKS)
def test_a_glimpse_in_a_batch_is_the_explanation_of_one_alone(name: str) -> None:
    network, codecs = made_network(name)
    pairs = [("abc de", "fe"), ("a", "cba fed"), ("ghi", "a")]
    reads, alone = [], []
    for source, target in pairs:
        inputs = {"source": source, "tags": source[::-1] * 2} if name == "extras" else source
        pair, encoded = codecs.pair(inputs, target)
        reads.append(Read(source, Forced(encoded, pair.target)))
        alone.append(explained(network, codecs, source, reads[-1].forced, likeliest=3))
    for found, wanted in zip(glimpsed(network, codecs, reads), map(in_passing, alone), strict=True):
        assert (found.text, found.answer, found.source) == (wanted.text, wanted.answer, wanted.source)
        assert (found.read, found.said) == (wanted.read, wanted.said)
        assert found.weights.shape == wanted.weights.shape
        np.testing.assert_allclose(found.weights, wanted.weights, atol=1e-5)
        for one, other in zip(found.output, wanted.output, strict=True):
            assert (one.token, one.rank) == (other.token, other.rank)
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
            assert [value for _, value in one.likeliest] == pytest.approx([v for _, v in other.likeliest], abs=1e-4)
    assert bool(len(alone[0].weights)) == (name != "one vector")


# --- curves --------------------------------------------------------------------------------------------------------


def test_curves_are_what_the_run_wrote(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [{"event": "started", "step": 0}]
    lines += [{"event": "logged", "step": step, "nll": 1 / step, "lr": 0.1} for step in range(1, 1001)]
    lines += [{"event": "validated", "step": 500, "values": {"nll": 2.0, "perplexity": 7.4, "bleu": 20.0}}]
    lines += [{"event": "validated", "step": 1000, "values": {"nll": None, "bleu": 25.0}, "best_step": 500}]
    log = tmp_path / "metrics.jsonl"
    log.write_text("\n".join([*map(json.dumps, lines), '{"event": "logg', "[]"]))
    found = {(curve.panel, curve.name): curve.points for curve in curves(log)}
    assert found["loss, nats per token", "validation"] == ((500, 2.0),)
    assert found["bleu on dev", "validation"] == ((500, 20.0), (1000, 25.0))
    training = found["loss, nats per token", "training"]
    assert training[0] == (1, 1.0)
    assert training[-1] == (1000, 0.001)
    assert 100 < len(training) <= MOST_POINTS + 1
    assert len(found) == 4
    assert best_step(log) == 500


def test_training_comes_first_also_where_it_was_logged_later(tmp_path: Path) -> None:
    """Colours are given in order: the same curve has the same one in every report."""
    log = tmp_path / "metrics.jsonl"
    lines = [{"event": "validated", "step": 20, "values": {"nll": 2.0}}, {"event": "logged", "step": 50, "nll": 1.0}]
    log.write_text("\n".join(map(json.dumps, lines)))
    assert [curve.name for curve in curves(log)] == ["training", "validation"]


def test_without_a_log_there_are_no_curves(tmp_path: Path) -> None:
    assert curves(tmp_path / "none") == ()
    assert best_step(tmp_path / "none") is None


# --- a real run ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> tuple[Judge, Report, list[str], list[float]]:
    """A tiny trained run, its report with 3 sentences closely, and what evaluation found."""
    model, options = load(trained()), Options(on_long="skip", beam=3)
    judge, examples = Judge(model), held_out(model.recipe)
    found = judge.run(model, examples, options)
    told = gathered(judge, model, examples, [found], options, Limits(sentences=20, closely=3))
    places = some(len(examples), 20)
    return (
        judge,
        told,
        [found.outputs[place] for place in places],
        [found.predictions[place].best.log_prob for place in places],
    )


def test_sentences_are_those_that_were_judged(real: tuple[Judge, Report, list[str], list[float]]) -> None:
    judge, told, outputs, log_probs = real
    assert [one.output for one in told.sentences] == outputs
    metric = next(iter(judge.metrics.values()))
    for one, log_prob in zip(told.sentences, log_probs, strict=True):
        assert one.value == pytest.approx(metric.score([one.output], [one.references]))
        assert one.explanation is not None
        assert one.explanation.answer == one.output
        assert one.explanation.log_prob == pytest.approx(log_prob, abs=1e-3)
        assert one.point is not None
    assert any("drawn by seed" in note for note in told.notes)


def test_only_the_telling_ones_come_with_their_beam(real: tuple[Judge, Report, list[str], list[float]]) -> None:
    _, told, _, _ = real
    assert sum(bool(one.why) for one in told.sentences) == 3
    for one in told.sentences:
        assert one.explanation is not None
        assert (one.explanation.tree is not None) == bool(one.why)
    tree = next(one.explanation.tree for one in told.sentences if one.explanation and one.explanation.tree)
    way = [token for node, token in zip(tree.nodes, tree.tokens, strict=True) if node.won and node.parent is not None]
    shown = next(one for one in told.sentences if one.why).explanation
    assert shown is not None
    assert way == [step.token for step in shown.output][: len(way)]


def test_diagnoses_data_and_curves_are_there(real: tuple[Judge, Report, list[str], list[float]]) -> None:
    _, told, _, _ = real
    assert told.diagnosis is not None
    assert sum(row["count"] for row in told.diagnosis["verdicts"]) == 20  # type: ignore[index,misc,union-attr,call-overload]
    assert {row["name"] for row in told.data["sets"]} == {"train", "dev"}  # type: ignore[index,misc,union-attr,call-overload]
    assert {curve.name for curve in told.curves} >= {"training", "validation"}
    assert told.variance is not None
    assert payload(report_page(told))["report"]["systems"][0]["decoding"]["search"] == "beam 3"  # type: ignore[index]


def test_attention_is_held_against_other_measures(real: tuple[Judge, Report, list[str], list[float]]) -> None:
    first, *lines = real[1].faithfulness
    assert first == "measured on the references of 3 of the telling sentences"
    assert any(line.startswith("weights permuted") for line in lines)


def test_an_ensemble_has_scores_and_no_inside() -> None:
    from seqloom.api.load import load_ensemble

    model = load_ensemble([trained(), trained()])
    judge, examples = Judge(model), held_out(model.recipe)[:4]
    text = report(judge, model, examples, [judge.run(model, examples)])
    assert answers(text) == [None] * 4
    assert any("no one inside" in note for note in payload(text)["notes"])  # type: ignore[attr-defined]


def test_a_run_without_a_test_set_reports_on_dev(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    pairs = tmp_path / "pairs.tsv"
    lines = pairs.read_text().splitlines(keepends=True)
    (tmp_path / "dev.tsv").write_text("".join(lines[:9]))
    (tmp_path / "none.tsv").write_text("")
    pairs.write_text("".join(lines[9:]))
    text = recipe.read_text().replace(
        "split: {dev: 0.1, test: 0.1}", f'dev: "{tmp_path / "dev.tsv"}", test: "{tmp_path / "none.tsv"}"'
    )
    recipe.write_text(text)
    run = train(recipe, tmp_path / "run").folder
    written = write_report(run, limits=Limits(sentences=5))
    assert written == run / "report.html"
    assert len(payload(written.read_text())["report"]["sentences"]) == 5  # type: ignore[index]
    assert "judged on 5 of 9 examples" in payload(written.read_text())["notes"]  # type: ignore[operator]


# --- the commands --------------------------------------------------------------------------------------------------


def test_evaluate_writes_it_and_says_where(seqloom: Command, run: Path, tmp_path: Path) -> None:
    said = seqloom("evaluate", run, "--against", run, "--greedy")
    assert said.code == 0, said
    assert f"report: {run / 'report.html'}" in said.err
    told = payload((run / "report.html").read_text())["report"]
    assert len(told["systems"]) == 2  # type: ignore[index]
    (run / "report.html").unlink()
    said = seqloom("evaluate", run, "--report", tmp_path / "mine.html", "--json")
    assert json.loads(said.out)["predicted"] is True
    assert (tmp_path / "mine.html").is_file()
    assert seqloom("evaluate", run, "--no-report").err == ""
    assert not (run / "report.html").exists()


def test_a_report_that_cannot_be_is_refused_before_anything_is_answered(
    seqloom: Command, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "out.txt").write_text("a\n")
    pairs = tmp_path / "p.tsv"
    pairs.write_text("ab\tba\n")
    for more in (
        ["--report", tmp_path / "r.html", "--no-report"],
        ["--report", "-"],
        ["--report", tmp_path / "r.html", "--outputs", tmp_path / "out.txt"],
        ["--report", pairs],
    ):
        seqloom("evaluate", run, "--data", pairs, *more).refused("E_USAGE", 2)
    seqloom("evaluate", run, "--report", tmp_path / "none" / "r.html").refused("E_FILE", 6)
    assert pairs.read_text() == "ab\tba\n"


def test_a_report_that_fails_costs_one_line_and_nothing_else(seqloom: Command, run: Path) -> None:
    (run / "report.html").mkdir()
    said = seqloom("evaluate", run)
    assert said.code == 0
    assert "95 % interval" in said.out
    assert said.err.startswith("no report: error[")
    assert len(said.err.splitlines()) == 1


def test_train_ends_with_a_report_and_a_failing_one_loses_nothing(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    said = seqloom("train", recipe, "--run", tmp_path / "run")
    assert said.code == 0, said
    assert (tmp_path / "run" / "report.html").is_file()
    before = (tmp_path / "run" / "report.html").stat().st_mtime_ns
    assert seqloom("train", tmp_path / "run").code == 0
    assert (tmp_path / "run" / "report.html").stat().st_mtime_ns == before, "a finished run keeps its report"
    assert seqloom("train", recipe, "--run", tmp_path / "without", "--no-report").code == 0
    assert not (tmp_path / "without" / "report.html").exists()
    (tmp_path / "without" / "report.html").mkdir()
    os.utime(tmp_path / "without" / "report.html", (0, 0))  # older than the end of the run
    said = seqloom("train", tmp_path / "without")
    assert said.code == 0
    assert "no report: error[" in said.err
