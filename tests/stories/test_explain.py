"""`seqloom explain`: a model that says sentences backwards shows where it looked, and what would be if."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from commands import Command
from seqloom import Model, SeqloomError, load
from seqloom.probe.edits import Edits, Look

pytest_plugins = ["command_fixtures"]

TEXT = "ant bee cat dog"


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> Model:
    return load(tiny_run, device="cpu")


def test_a_learned_reversal_is_seen_in_its_weights(model: Model) -> None:
    found = model.explain(TEXT)
    assert found.answer == "dog cat bee ant" == model(TEXT).text
    assert found.by_words().argmax(1).tolist() == [3, 2, 1, 0]
    assert found.log_prob == pytest.approx(model(TEXT).hypotheses[0].log_prob, abs=1e-4)
    assert found.tree is not None
    assert [node.token for node in found.tree.nodes if node.won][1:-1] == model.target.encode(found.answer)


def test_what_the_model_thinks_of_a_given_target(model: Model) -> None:
    found = model.explain(TEXT, "dog cat cat ant")
    assert found.tree is None
    assert [told.rank for told in found.output[:2]] == [1, 1]
    assert found.output[2].rank > 1
    assert found.output[2].likeliest[0][0] == "bee"
    assert [word for word, _ in found.words()] == ["dog", "cat", "cat", "ant", found.output[-1].token]
    assert sum(value for _, value in found.words()) == pytest.approx(found.log_prob), "blanks are said as well"


def test_looking_elsewhere_changes_what_is_said(model: Model) -> None:
    found = model.explain(TEXT, edits=Edits((Look.parse("1=1"),)))
    assert found.weights[0, 0, 0].tolist() == [1, 0, 0, 0, 0]
    assert found.answer.split()[0] != "dog", "it was not allowed to see it"


def test_the_command_line(seqloom: Command, tiny_run: Path) -> None:
    plain = seqloom("explain", tiny_run, TEXT, "--tree", "--words")
    assert plain.code == 0, plain.err
    assert "dog cat bee ant" in plain.out
    assert "where it looked" in plain.out
    assert re.search(r"^    \* <s>$", plain.out, re.M)
    assert re.search(r"^  4 .*\* ant  -", plain.out, re.M), "the fourth word of the answer"
    told = json.loads(seqloom("explain", tiny_run, TEXT, "--json").out)
    assert told["answer"] == "dog cat bee ant"
    assert len(told["weights"][0][0]) == len(told["output"]) == 5
    assert any(node["won"] for node in told["tree"]["nodes"])
    assert "without_edits" not in told


def test_every_edit_is_shown_with_the_command_that_makes_it(seqloom: Command, tiny_run: Path) -> None:
    edits = {
        "--prefix=cat": "cat ",
        "--replace=dog=fox": "fox cat bee ant",
        "--ban=dog": "",
        "--attend=1=1": "",
        "--mask-head=1.1": "",
    }
    for edit, begins in edits.items():
        told = json.loads(seqloom("explain", tiny_run, TEXT, edit, "--json").out)
        assert told["without_edits"]["answer"] == "dog cat bee ant"
        assert told["answer"].startswith(begins)
        assert told["answer"] != "dog cat bee ant"
        again = shlex.split(told["command"])
        assert again[1] == "explain"
        assert json.loads(seqloom(*again[1:], "--json").out) == told
        assert told["command"] in seqloom("explain", tiny_run, TEXT, edit).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["", "--beam", "3"], "empty"),
        ([TEXT, "--layer", "2"], "layers 1 to 1"),
        ([TEXT, "--head", "2"], "heads 1 to 1"),
        ([TEXT, "--attend", "9=1"], "the output has 5 tokens"),
        ([TEXT, "--attend", "1"], "cannot be read"),
        ([TEXT, "--mask-head", "x"], "cannot be read"),
        ([TEXT, "--replace", "gnu=hen"], "does not stand in the text"),
        ([TEXT, "--target", "dog", "--beam", "2"], "--target"),
        ([TEXT, "--greedy", "--beam", "2"], "choose one"),
        ([TEXT, "--extra", "tags=x"], "no such input"),
        ([TEXT, "--mask-head", "1.0"], "heads 1 to 1"),
        ([TEXT, "--attend", "1=inf,1"], "weights are numbers"),
        ([TEXT, "--layer", "2", "--json"], "layers 1 to 1"),
        ([TEXT, "--html", "-", "--json"], "stdout holds one of them"),
        ([TEXT, "--data", "pairs.tsv"], "--data has no meaning without --neighbours"),
    ],
)
def test_what_cannot_be_explained(seqloom: Command, tiny_run: Path, arguments: list[str], said: str) -> None:
    assert said in seqloom("explain", tiny_run, *arguments).refused("E_USAGE", 2)


@pytest.mark.parametrize(("side", "words"), [("source", [TEXT * 500]), ("target", [TEXT, "--target", TEXT * 500])])
def test_what_is_too_long_is_said_without_options_of_other_commands(
    seqloom: Command, tiny_run: Path, side: str, words: list[str]
) -> None:
    said = seqloom("explain", tiny_run, *words).refused("E_LONG", 3)
    assert f"a {side} of " in said
    assert f"data.limits.max_{side}" in said
    assert "--on-long" not in said


def test_a_text_that_looks_like_an_option_is_still_reproduced(seqloom: Command, tiny_run: Path) -> None:
    told = json.loads(seqloom("explain", "--replace=-5=ant", "--json", "--", tiny_run, "-5 bee").out)
    words = shlex.split(told["command"])[1:]
    assert json.loads(seqloom(*words[:1], "--json", *words[1:]).out) == told


def test_several_models_as_one_have_no_inside(tiny_run: Path) -> None:
    from seqloom.api.load import load_ensemble

    with pytest.raises(SeqloomError, match="several models"):
        load_ensemble([tiny_run, tiny_run]).explain(TEXT)


# --- looks at a text, and at many examples --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([TEXT, "--attribute", "occlusion"], "dog <- dog"),
        ([TEXT, "--faithfulness"], "attention and gradients: tau"),
        ([TEXT, "--neighbours", "3"], "nearest of"),
        (["--faithfulness"], "weights permuted"),
        (["--states"], "of their variance"),
        (["--states", "--colour", "score"], "by score"),
        (["--gradients"], "by distance"),
        (["--depth"], "without it"),
    ],
)
def test_looks(seqloom: Command, tiny_run: Path, arguments: list[str], said: str) -> None:
    shown = seqloom("explain", tiny_run, *arguments)
    assert shown.code == 0, shown.err
    assert said in shown.out
    told = json.loads(seqloom("explain", tiny_run, *arguments, "--json").out)
    assert told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to explain"),
        (["--tree"], "--tree has no meaning without a TEXT"),
        (["--html", "x.html"], "--html has no meaning without a TEXT"),
        ([TEXT, "--states"], "look at a test set"),
        ([TEXT, "--label", "x"], "--label has no meaning without --depth"),
        (["--gradients", "--colour", "score"], "--colour has no meaning without --states"),
        (["--states", "--words"], "--words has no meaning without a TEXT"),
        (["--depth", "--head", "1"], "--head has no meaning without a TEXT"),
        (["--states", "--layer", "1"], "--layer has no meaning without --gradients"),
        ([TEXT, "--attribute", "gradient", "--tree"], "--tree is about the answer"),
        ([TEXT, "--faithfulness", "--layer", "1"], "--layer is about the answer"),
        ([TEXT, "--attribute", "gradient", "--attend", "1=1"], "edit the answer alone"),
        ([TEXT, "--attribute", "magic"], "magic"),
        ([TEXT, "--attribute", "rollout"], "self-attention"),
        (["--depth", "--label", "mood"], "no column is called 'mood'"),
    ],
)
def test_looks_that_cannot_be(seqloom: Command, tiny_run: Path, arguments: list[str], said: str) -> None:
    assert said in seqloom("explain", tiny_run, *arguments).refused("E_USAGE", 2)


def test_a_page_is_written_whole(seqloom: Command, tiny_run: Path, tmp_path: Path) -> None:
    place = tmp_path / "answer.html"
    shown = seqloom("explain", tiny_run, TEXT, "--replace", "dog=fox", "--html", place)
    assert shown.code == 0, shown.err
    text = place.read_text(encoding="utf-8")
    assert "fox cat bee ant" in text
    assert "dog cat bee ant" in text
    assert str(place.name) in shown.err


def test_a_page_takes_nobody_s_place(seqloom: Command, tiny_run: Path, tmp_path: Path) -> None:
    recipe = (tiny_run / "recipe.yaml").read_bytes()
    data = load(tiny_run).recipe.data.files()["train"][0]
    for place in (tiny_run / "recipe.yaml", data):
        said = seqloom("explain", tiny_run, TEXT, "--html", place).refused("E_USAGE", 2)
        assert "would overwrite an input" in said
    assert (tiny_run / "recipe.yaml").read_bytes() == recipe
    for place in (tmp_path, tmp_path / "nowhere" / "x.html"):
        seqloom("explain", tiny_run, TEXT, "--html", place).refused("E_FILE", 6)


def test_a_page_holds_what_else_was_asked(seqloom: Command, tiny_run: Path, tmp_path: Path) -> None:
    place = tmp_path / "answer.html"
    shown = seqloom("explain", tiny_run, TEXT, "--attribute", "occlusion", "--faithfulness", "--html", place)
    assert shown.code == 0, shown.err
    data = re.search(r'id="data">(.*?)</script>', place.read_text(encoding="utf-8"))
    assert data is not None
    told = json.loads(data[1])
    assert told["method"] == "occlusion"
    assert {"source", "from_source", "from_output"} <= set(told["answers"][0]["attention"])
    assert any("weights permuted" in note for note in told["notes"])


def test_an_attribution_is_of_both_sides_and_of_words(seqloom: Command, tiny_run: Path) -> None:
    shown = seqloom("explain", tiny_run, TEXT, "--attribute", "occlusion", "--words")
    assert "to each that was read, by occlusion" in shown.out
    assert "to what had been said before it" in shown.out


def test_faithfulness_is_of_the_target_that_is_given(seqloom: Command, tiny_run: Path) -> None:
    own, other = (
        json.loads(seqloom("explain", tiny_run, TEXT, "--faithfulness", *more, "--json").out)["faithfulness"]
        for more in ([], ["--target", "bee"])
    )
    assert own["steps"] == 5
    assert other["steps"] == 2
