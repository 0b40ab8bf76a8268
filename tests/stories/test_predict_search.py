"""Searching as a person asks for it, in Python and on the command line: phrases, lists, patterns, groups, advice."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import Command, write_recipe
from seqloom import Model, SeqloomError, load
from seqloom.api.fusion import fuse
from seqloom.api.options import Options
from seqloom.batch import Batch, Tokens
from seqloom.data.batching import ended
from seqloom.specials import EOS, UNK

pytest_plugins = ["command_fixtures"]


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> Model:
    """Says sentences of animals backwards, and mostly gets them right."""
    return load(tiny_run, device="cpu")


# --- phrases, lists, patterns ------------------------------------------------------------------------------------


def test_phrases_that_must_and_must_not_occur(model: Model) -> None:
    texts = ["ant bee cat", "dog eel", "fox", "gnu hen ant bee cat"]
    for phrases in (["gnu"], ["hen gnu", "fox"], ["ant bee", "bee cat"]):
        for prediction in model(texts, must=phrases, n_best=2):
            for output in prediction.hypotheses:
                assert all(phrase in output.text for phrase in phrases), output
    plain = model("ant bee cat")
    assert plain.text == "cat bee ant"
    assert "cat bee" not in model("ant bee cat", banned=["cat bee"]).text
    assert "cat" in model("ant bee cat", banned=["cat bee"], must=["cat"]).text
    assert model("ant bee cat", banned=["gnu hen"]) == plain


def test_what_is_asked_of_a_whole_output_is_not_asked_of_its_sentences(model: Model) -> None:
    assert model.reader.splits_sentences
    plain, whole, told = (Options(), Options(must=("gnu",)), Options(must=("gnu",), split=True))
    counts = [len(model.reader.read("Ant bee. Cat dog.", options, "here")[2]) for options in (plain, whole, told)]
    assert counts == [2, 1, 2]


def test_what_was_found_under_constraints_has_the_models_own_probability(model: Model) -> None:
    for wishes in (
        {"must": ["gnu"]},
        {"banned": ["cat bee"]},
        {"one_of": ["cat ant", "bee", "hen hen hen"]},
        {"pattern": "(ant|bee)( [a-z]+)?"},
        {"beam": 6, "groups": 3},
        {"coverage_penalty": 0.3},
        {"risk": {"samples": 5}},
    ):
        prediction = model("ant bee cat", **wishes)
        (scored,) = model.score([("ant bee cat", prediction.text)])
        assert prediction.best.log_prob == pytest.approx(scored.log_prob, abs=1e-4), wishes


def test_a_list_as_wide_as_the_beam_is_ranked(model: Model) -> None:
    answers = ["cat bee ant", "ant bee cat", "cat", "bee bee bee bee", "hen", "gnu fox"]
    none = {"kind": "beam", "size": 6, "length": "none", "stop": "bound"}
    prediction = model("ant bee cat", one_of=answers, strategy=none, n_best=6)
    scored = model.score([("ant bee cat", answer) for answer in answers])
    ranked = sorted(zip(answers, scored, strict=True), key=lambda pair: -pair[1].log_prob)
    assert [output.text for output in prediction.hypotheses] == [answer for answer, _ in ranked]
    assert not any(output.truncated for output in prediction.hypotheses)
    long = " ".join(["hen"] * 40)
    assert model("ant", one_of=[long]).text == long, "a ratio gives way to the list"
    with pytest.raises(SeqloomError, match=r"the shortest output that the list allows has 40 tokens.*max_length"):
        model("ant", one_of=[long], max_length=10)


@pytest.mark.parametrize("pattern", [r"[b-e ]+|h.*", r"(\w{3} ){2}\w{3}", r"gnu|hen( fox)*", r".*t"])
@pytest.mark.parametrize("wishes", [{}, {"beam": 1}, {"strategy": {"kind": "sample", "samples": 3}, "n_best": 3}])
def test_outputs_match_the_pattern(model: Model, pattern: str, wishes: dict[str, object]) -> None:
    for prediction in model(["ant bee cat", "dog eel", "fox"], pattern=pattern, **wishes):
        for output in prediction.hypotheses:
            assert re.fullmatch(pattern, output.text), output
            assert not output.truncated


def test_prefixes_and_patterns_must_agree(model: Model) -> None:
    assert model("ant bee", pattern="hen( [a-z]+)*", prefix="hen gnu").text.startswith("hen gnu")
    for wishes in ({"pattern": "hen( [a-z]+)*"}, {"one_of": ["hen", "hen hen"]}):
        for prefix in ("gnu", "hen gnu ant" if "one_of" in wishes else "gnu hen"):
            with pytest.raises(SeqloomError, match=r"E_USAGE.*begins with the prefix"):
                model("ant bee", prefix=prefix, **wishes)
    with pytest.raises(SeqloomError, match="has 4 tokens, the limit is 3"):
        model("ant bee", prefix="hen hen", pattern="hen hen hen hen", max_length=3)


# --- groups, coverage, unknown words, samples --------------------------------------------------------------------


def test_groups_give_different_outputs(model: Model) -> None:
    plain = model("ant bee cat dog", beam=4, n_best=4)
    diverse = model("ant bee cat dog", beam=4, n_best=4, groups=4, diversity=3.0)
    assert diverse.text == plain.text, "the first group is a beam"

    def shared(prediction: object) -> int:
        firsts = [output.tokens[0] for output in prediction.hypotheses if output.tokens]  # type: ignore[attr-defined]
        return len(firsts) - len(set(firsts))

    assert shared(diverse) < shared(plain)


def test_the_coverage_penalty_changes_the_score_and_the_order_only(model: Model) -> None:
    texts, beta = ["ant bee cat", "dog eel fox gnu", "hen hen"], 0.7
    plain = model(texts, n_best=5)
    judged = model(texts, n_best=5, coverage_penalty=beta)
    for before, after in zip(plain, judged, strict=True):
        known = {output.tokens: output for output in before.hypotheses}
        assert {output.tokens for output in after.hypotheses} == set(known)
        scores = [output.score for output in after.hypotheses if not output.truncated]
        assert scores == sorted(scores, reverse=True)
        for output in after.hypotheses:
            assert output.log_prob == known[output.tokens].log_prob
            expected = known[output.tokens].score + beta * _coverage(model, after.source, output.tokens)
            assert output.score == pytest.approx(expected, abs=1e-5)


def _coverage(model: Model, source: str, tokens: tuple[str, ...]) -> float:
    """sum over source words of log min(1, sum over output tokens, the end included, of the weights)."""
    read, said = model.source.encode(source), model.target.vocabulary.ids(tokens)
    batch = Batch({"source": ended([np.asarray(read)])}, ended([np.asarray(said, dtype=np.int64)]))
    with torch.inference_mode():
        weights = model.network.attention(batch)[-1][0].mean(0)  # T S
    return float(weights.sum(0)[: len(read)].clamp(max=1).log().sum())


def test_an_unknown_word_is_the_one_that_was_looked_at(model: Model) -> None:
    """An output that holds UNK, as a forced beginning, shows there what the source has where the model looked."""
    for text in ("ant zebra", "ant bee yak"):
        encoded = model.codecs.encode(text)
        (found,) = model.search([encoded], Options(), Tokens.pad([[UNK]]))
        plain, replaced = (
            model.prediction(text, {}, encoded, found[:1], Options(replace_unknown=wanted)) for wanted in (False, True)
        )
        assert plain.text.startswith("<unk>")
        target = Tokens.pad([[*model.target.vocabulary.ids(plain.tokens), EOS]])
        batch = Batch({"source": ended([np.asarray(model.source.encode(text))])}, target)
        with torch.inference_mode():
            looked = model.network.attention(batch)[-1][0].mean(0)[:, : len(text.split())].argmax(1).tolist()
        words = [text.split()[looked[i]] if token == "<unk>" else token for i, token in enumerate(plain.tokens)]
        assert replaced.text == " ".join(words)
        assert replaced.best.log_prob == plain.best.log_prob


def test_the_sample_that_others_agree_with(model: Model) -> None:
    risk = {"samples": 12, "metric": "chrf"}
    one = model("ant bee cat dog", risk=risk, n_best=3)
    assert one == model("ant bee cat dog", risk=risk, n_best=3), "the same draws every time"
    assert one.text == "dog cat bee ant"
    scores = [output.score for output in one.hypotheses]
    assert scores == sorted(scores, reverse=True)
    assert 0 <= scores[-1] <= scores[0] <= 100
    wild = {"kind": "sample", "temperature": 3.0}
    texts = {model("ant bee", risk=risk, strategy={**wild, "seed": seed}).text for seed in range(4)}
    assert len(texts) > 1, "how samples are drawn can be chosen"
    both = model(["ant bee", "cat"], risk={**risk, "beam": True}, beam=3)
    assert [prediction.text for prediction in both] == ["bee ant", "cat"]


# --- a closer look -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wishes",
    [
        {"beam": 1},
        {},
        {"beam": 8},
        {"strategy": {"kind": "sample", "temperature": 2.0, "seed": 3}},
        {"strategy": {"kind": "beam", "size": 3, "stop": "bound"}},
        {"beam": 4, "groups": 2},
        {"must": ["gnu"]},
        {"pattern": "[a-f ]+"},
        {"max_length": 2},
    ],
    ids=str,
)
def test_a_stream_ends_with_what_predict_says(model: Model, wishes: dict[str, object]) -> None:
    for text in ("ant bee cat dog eel", "fox", "", "ant bee\nfox  gnu\n"):
        assert "".join(model.stream(text, **wishes)) == model(text, **wishes).text


def test_a_stream_tells_early(model: Model) -> None:
    pieces = list(model.stream("ant bee cat dog eel", beam=1))
    assert pieces == ["eel", " dog", " cat", " bee", " ant"]
    beam = list(model.stream("ant bee cat dog eel", beam=5, prefix="eel hen"))
    assert beam[:2] == ["eel", " hen"], "a beam tells what its hypotheses agree on"


def test_alternatives_after_a_beginning(model: Model) -> None:
    offered = model.alternatives("ant bee cat", prefix="cat", k=4)
    assert len(offered) == 4
    assert offered[0].token == "bee"
    assert offered[0].prediction.text == "cat bee ant"
    chances = [one.probability for one in offered]
    assert chances == sorted(chances, reverse=True)
    assert sum(chances) <= 1
    tokens = {one.token: one for one in model.alternatives("ant bee cat", prefix="cat", k=9)}
    ended_here = tokens["<eos>"].prediction
    assert ended_here.text == "cat"
    for one in (ended_here, offered[1].prediction):
        (scored,) = model.score([("ant bee cat", one.text)])
        assert one.best.log_prob == pytest.approx(scored.log_prob, abs=1e-4)
    (first, *_) = model.score([("ant bee cat", "cat bee ant")])
    assert offered[0].probability == pytest.approx(float(np.exp(first.token_scores[1])), abs=1e-5)
    assert model.alternatives("ant", k=2)[0].prediction.text.startswith("ant")
    assert "<unk>" not in tokens
    only = model.alternatives("ant bee cat", prefix="cat", k=4, pattern="cat (hen|gnu)")
    assert {one.token for one in only} == {"hen", "gnu"}
    for wrong in ({"text": "", "k": 3}, {"text": "ant", "k": 0}):
        with pytest.raises(SeqloomError, match="E_USAGE"):
            model.alternatives(**wrong)  # type: ignore[arg-type]


def test_fusing_a_model_with_itself_is_deciding_louder(model: Model) -> None:
    """log p + 0.5 log p = 1.5 log p: the same outputs; `score` says what was added, `log_prob` does not."""
    texts = ["ant bee cat", "dog eel fox gnu"]
    both = fuse(model, model, 0.5)
    plain = model(texts, strategy={"kind": "beam", "length": "mean"})
    for one, other in zip(both(texts), plain, strict=True):
        assert one.text == other.text
        assert one.best.log_prob == pytest.approx(other.best.log_prob, abs=1e-5)
        assert one.score == pytest.approx(1.5 * other.score, abs=1e-5)
        assert one.confidence == pytest.approx(other.confidence, abs=1e-6)
    assert "".join(both.stream(texts[0])) == both(texts[0]).text
    with pytest.raises(SeqloomError, match="fuses nothing"):
        fuse(model, model, 0.0)


# --- the command line --------------------------------------------------------------------------------------------


def test_every_way_to_ask_on_the_command_line(seqloom: Command, tiny_run: Path, tmp_path: Path) -> None:
    def said(*options: object) -> str:
        answer = seqloom("predict", tiny_run, "-t", "ant bee cat", *options)
        assert answer.code == 0, answer.err
        return answer.out

    assert said("--must", "gnu hen").count("gnu hen") == 1
    assert "cat bee" not in said("--ban", "cat bee")
    (tmp_path / "list.txt").write_text("hen\n\ncat ant\n")
    assert said("--one-of", tmp_path / "list.txt") in ("hen\n", "cat ant\n")
    assert re.fullmatch(r"\w{3} \w{3}\n", said("--pattern", r"\w{3} \w{3}"))
    assert said("--beam", "6", "--diverse", "3", "--diversity", "2", "-n", "3").count("\n") == 3
    assert said("--coverage-penalty", "0.2").endswith("\n")
    assert said("--prefix", "hen gnu", "--replace-unknown").startswith("hen gnu")
    assert said("--mbr", "6", "--mbr-metric", "bleu:order=2", "--mbr-beam", "--beam", "3") == said("--mbr", "6")
    assert said("--stream") == said() == said("--fuse", tiny_run, "--fuse-weight", "0.5")
    rows = [line.split("\t") for line in said("--prefix", "cat", "--alternatives", "3").splitlines()]
    assert [(row[0], row[1]) for row in rows] == [("1", "1"), ("1", "2"), ("1", "3")]
    assert rows[0][3:] == ["bee", "cat bee ant"]
    told = json.loads(said("--prefix", "cat", "--alternatives", "2", "--json"))
    assert [one["token"] for one in told["alternatives"]] == [row[3] for row in rows[:2]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--diverse", "2"], "groups: 2 does not divide the beam's size 5"),
        (["--diversity", "2"], "--diversity without --diverse"),
        (["--must", "abc", "--max-length", "2"], "need 3 tokens, the limit is 2"),
        (["--must", "abc", "--greedy"], "greedy search cannot promise"),
        (["--must", "日"], "the model cannot say '日'"),
        (["--pattern", "(a"], "a group is not closed"),
        (["--pattern", r"(a)\1"], "not supported"),
        (["--pattern", "((a{100}){100}){100}"], "too large"),
        (["--pattern", "[a-h]{3}", "--max-length", "2"], "has 3 tokens, the limit is 2"),
        (["--pattern", "[b-h]+", "--prefix", "a"], "begins with the prefix"),
        (["--prefix", "abz日"], "prefix: the model cannot say 'z', '日'"),
        (["--prefix", "z", "--alternatives", "2"], "prefix: the model cannot say 'z'"),
        (["--prefix", "z", "--stream"], "prefix: the model cannot say 'z'"),
        (["--prefix", "abc", "--max-length", "2"], "prefix: it has 3 tokens, max_length is 2"),
        (["--mbr-metric", "chrf"], "--mbr-metric without --mbr"),
        (["--mbr", "8", "--mbr-metric", "blue"], 'did you mean "bleu"'),
        (["--mbr", "1"], "samples"),
        (["--mbr", "8", "--beam", "4"], "risk: beam has no meaning"),
        (["--fuse-weight", "1"], "--fuse-weight without --fuse"),
        (["--stream", "--json"], "--stream writes plain text"),
        (["--stream", "--coverage-penalty", "1"], "cannot be told while it is made"),
        (["--alternatives", "0"], "at least 1"),
        (["--coverage-penalty", "-1"], "coverage_penalty"),
    ],
)
def test_wishes_that_cannot_be_met(options: list[str], said: str, seqloom: Command, run: Path) -> None:
    answer = seqloom("predict", run, "-t", "abc", *options)
    assert said in answer.refused("E_USAGE", 2), answer.err
    assert answer.out == ""


def test_files_and_texts_that_do_not_fit(seqloom: Command, run: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n  \n")
    line = seqloom("predict", run, "-t", "abc", "--one-of", empty).refused("E_USAGE", 2)
    assert "is empty" in line
    assert str(empty) in line
    assert seqloom("predict", run, "-t", "abc", "--one-of", tmp_path / "no.txt").refused("E_FILE", 6)
    strange = tmp_path / "strange.txt"
    strange.write_text("abc\nÄÖ\n")
    assert "'ÄÖ'" in seqloom("predict", run, "-t", "abc", "--one-of", strange).refused("E_USAGE", 2)
    source = tmp_path / "in.txt"
    source.write_text("abc\n")
    for option in (["--stream"], ["--alternatives", "2"]):
        assert "--text" in seqloom("predict", run, source, *option).refused("E_USAGE", 2)


def test_runs_of_other_vocabularies_neither_advise_nor_average(seqloom: Command, run: Path, tiny_run: Path) -> None:
    for option in (["--fuse", tiny_run], [tiny_run, "--ensemble"]):
        line = seqloom("predict", run, *option, "-t", "abc").refused("E_BUNDLE", 4)
        assert "do not read and write alike: source.tokenizer differs: characters, words" in line


def test_a_model_without_attention_says_so(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, training="{steps: 1}")
    blind = ["--set", "model.decoder={kind: rnn, width: 16}", "--quiet"]
    assert seqloom("train", recipe, "--run", tmp_path / "blind", *blind).code == 0
    for option in (["--coverage-penalty", "0.2"], ["--replace-unknown"]):
        line = seqloom("predict", tmp_path / "blind", "-t", "abc", *option).refused("E_USAGE", 2)
        assert "has no attention" in line
