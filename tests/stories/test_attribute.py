"""A model that says sentences backwards: which word each of its words came from, and whether its attention tells."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seqloom.api.attribute import attributed, faithfulness
from seqloom.api.load import load, load_ensemble
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.api.train import train
from seqloom.data.examples import Example
from seqloom.errors import SeqloomError
from seqloom.probe.attribution import METHODS
from seqloom.probe.faithfulness import Trials

TEXTS = ["eel fox cat hen", "ant gnu dog bee", "hen bee", "cat ant fox dog", "bee cat eel", "dog hen ant gnu"]
QUICK = Trials(permutations=5, steps=10, starts=1)


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> Model:
    return load(tiny_run, threads=1)


@pytest.fixture(scope="module")
def trained(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Model]:
    """Another run of the same data."""

    def run(*settings: str) -> Model:
        return load(train(tiny_recipe, tmp_path_factory.mktemp("other"), list(settings)).folder, threads=1)

    return run


def test_each_word_came_from_the_word_that_it_repeats(model: Model) -> None:
    """Attention finds most of them, and so do methods that know nothing of attention; chance would be a quarter."""
    for method, least in (("attention", 0.9), ("gradient", 0.6), ("integrated", 0.5), ("occlusion", 0.7)):
        right, total = 0, 0
        for text in TEXTS:
            said = text.split()[::-1]
            origins = attributed(model, text, " ".join(said), method).origins()
            assert [origin.word for origin in origins] == [*said, "<eos>"]
            right += sum(origin.sources[0][1] == origin.word for origin in origins[:-1] if origin.sources)
            total += len(said)
        assert right / total >= least, method


def test_the_answer_is_the_models_own_unless_one_is_given(model: Model) -> None:
    found, given = attributed(model, TEXTS[0]), attributed(model, TEXTS[0], "hen hen")
    assert " ".join(found.output[:-1]) == model(TEXTS[0]).text
    assert given.output == ("hen", "hen", "<eos>")
    assert found.source == ("eel", "fox", "cat", "hen", "<eos>")
    scored = model.score([(TEXTS[0], "hen hen")])[0]
    assert given.log_probs.tolist() == pytest.approx(scored.token_scores, abs=1e-5)
    assert json.loads(json.dumps(given.as_dict()))["method"] == "gradient"
    cut = attributed(model, TEXTS[0], options=Options(max_length=2))
    assert len(cut.output) == len(cut.of_source) == 2
    assert cut.origins()


def test_letters_become_words(trained: Callable[..., Model]) -> None:
    letters = trained(
        "source.tokenizer=characters", "target.tokenizer=characters", "training.steps=2", "model.head=copy"
    )
    shown = attributed(letters, "ant bee", "bee ant", "occlusion")
    assert len(shown.source) == 8
    merged = shown.by_words()
    assert (merged.source, merged.output) == (("ant", "bee", "<eos>"), ("bee", "ant", "<eos>"))
    assert merged.log_probs.sum() == pytest.approx(shown.log_probs[[0, 1, 2, 4, 5, 6, 7]].sum())


def test_a_transformer_can_be_rolled_out_and_a_recurrent_model_cannot(
    model: Model, trained: Callable[..., Model]
) -> None:
    tall = trained("model.encoder.kind=transformer", "model.decoder.kind=transformer", "training.steps=2")
    rolled = attributed(tall, TEXTS[0], "hen cat", "rollout")
    assert (rolled.of_source.sum(1) + rolled.of_target.sum(1) < 1).all()  # the start of the output has the rest
    with pytest.raises(SeqloomError, match=r"E_USAGE.*roll-out"):
        attributed(model, TEXTS[0], method="rollout")


def test_attention_is_judged(model: Model) -> None:
    """This model's output does follow its weights: shuffled ones say something else."""
    one = faithfulness(model, TEXTS[0], QUICK)
    several = faithfulness(model, TEXTS[:3], QUICK)
    assert (one.pairs, several.pairs) == (1, 3)
    assert several.permuted.mean > 0.3
    assert several.lines()
    example = Example(TEXTS[0], ("hen cat",), "pairs.tsv", 7)
    assert faithfulness(model, [example], QUICK).steps == 3
    assert json.loads(json.dumps(several.as_dict()))["pairs"] == 3


def test_what_cannot_be_told_is_said(model: Model, tiny_run: Path, trained: Callable[..., Model]) -> None:
    def refused(match: str, ask: Callable[[], object]) -> None:
        with pytest.raises(SeqloomError, match=match):
            ask()

    refused(r"E_USAGE.*attributions are: .*rollout", lambda: attributed(model, "ant", method="shap"))
    refused(r"E_USAGE.*did you mean \"gradient\"", lambda: attributed(model, "ant", method="gradients"))
    refused(r"E_USAGE.*steps", lambda: attributed(model, "ant", method={"kind": "integrated", "steps": 0}))
    refused("E_USAGE.*empty text", lambda: attributed(model, " "))
    refused("E_LONG.*recipe's maximum", lambda: attributed(model, "ant", "bee " * 2000))
    refused("E_LONG", lambda: attributed(model, "ant " * 2000))
    refused("E_EMPTY", lambda: faithfulness(model, []))
    refused("E_USAGE.*several models", lambda: attributed(load_ensemble([tiny_run, tiny_run]), "ant"))
    blind = trained("model.decoder.kind=rnn", "training.steps=2")
    refused(r"E_USAGE.*no attention", lambda: attributed(blind, "ant", method="attention"))
    refused(r"E_USAGE.*no attention", lambda: faithfulness(blind, "ant"))
    for method in ("gradient", "integrated", "occlusion"):
        assert attributed(blind, "ant", method=method).of_source.any()
    assert set(METHODS) >= {"attention", "rollout", "gradient", "integrated", "occlusion"}
