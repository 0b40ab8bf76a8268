"""What source tokens lead to, and predictions that choose from it: the same answers, from fewer tokens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import seqloom
from commands import Command
from seqloom.api.lexicon import leads_to, learn_lexicon
from seqloom.batch import Tokens
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
from seqloom.data.corpus import Corpus, Limits
from seqloom.data.examples import Example
from seqloom.data.lexicon import FILE, Lexicon
from seqloom.errors import SeqloomError
from seqloom.models.narrowed import Narrowed
from seqloom.specials import BOS, EOS
from tiny import write_recipe

pytest_plugins = ["command_fixtures"]

PAIRS = [
    ("the house", "das haus"),
    ("the book", "das buch"),
    ("a book", "ein buch"),
    ("a house", "ein haus"),
    ("the big house", "das haus gross"),
    ("a big book", "ein buch gross"),
]


def learned(folder: Path) -> tuple[Lexicon, Codecs]:
    settings = TextCodec.Settings.model_validate({"tokenizer": "words"})
    source, target = (TextCodec.train(settings, lambda side=side: (pair[side] for pair in PAIRS), 1) for side in (0, 1))
    codecs = Codecs(source, target)
    examples = [Example(pair[0], (pair[1],), "made", line) for line, pair in enumerate(PAIRS)]
    corpus, _ = Corpus.build(examples, codecs, folder / "corpus", Limits())
    return Lexicon.learn(corpus, (len(source.vocabulary), len(target.vocabulary))), codecs


def test_words_lead_to_their_translations(tmp_path: Path) -> None:
    lexicon, codecs = learned(tmp_path)
    for word, translation in {"house": "haus", "book": "buch", "the": "das", "a": "ein", "big": "gross"}.items():
        best = int(lexicon.leads_to[codecs.source.encode(word)[0]][0])
        assert codecs.target.vocabulary.piece(best) == translation


def test_a_shortlist_holds_what_the_words_lead_to_and_the_end(tmp_path: Path) -> None:
    lexicon, codecs = learned(tmp_path)
    sources = Tokens.pad([codecs.source.encode("the house"), codecs.source.encode("book")])
    size = len(codecs.target.vocabulary)
    allowed = lexicon.allowed(sources.ids, 1, size)
    assert allowed.shape == (2, size)
    assert bool(allowed[:, EOS].all())
    words = [{codecs.target.vocabulary.piece(int(token)) for token in row.nonzero()[:, 0]} for row in allowed]
    assert {"das", "haus"} <= words[0]
    assert "buch" not in words[0]
    assert "buch" in words[1]
    assert "haus" not in words[1]


def test_a_lexicon_comes_back_from_its_file_and_fits_its_vocabulary_only(tmp_path: Path) -> None:
    lexicon, codecs = learned(tmp_path)
    sizes = len(codecs.source.vocabulary), len(codecs.target.vocabulary)
    lexicon.save(tmp_path)
    again = Lexicon.load(tmp_path, sizes)
    assert torch.equal(again.leads_to, lexicon.leads_to)
    assert torch.equal(again.anywhere, lexicon.anywhere)
    for wrong in ((sizes[0] + 1, sizes[1]), (sizes[0], 7)):
        with pytest.raises(SeqloomError, match="another vocabulary"):
            Lexicon.load(tmp_path, wrong)
    (tmp_path / FILE).write_bytes(b"x" * 40)
    with pytest.raises(SeqloomError, match=r"safetensors.*seqloom lexicon RUN"):
        Lexicon.load(tmp_path, sizes)


# --- predictions -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run, which says sentences backwards, with its lexicon."""
    folder = tmp_path_factory.mktemp("lexicon")
    run = seqloom.train(write_recipe(folder), folder / "run").folder
    learned = learn_lexicon(run)
    assert learned.path == run / FILE
    assert learned.shares[10] == pytest.approx(1.0)
    return run


TEXTS = ["ant bee", "cat dog eel ant", "hen", "", "fox gnu", "bee bee cat"]


def test_a_whole_vocabulary_as_shortlist_changes_nothing(listed: Path) -> None:
    model = seqloom.load(listed)
    scorer = Narrowed(model.network, lambda ids: torch.ones(len(ids), len(model.target.vocabulary), dtype=torch.bool))
    sources = model.sources([model.codecs.encode(text) for text in TEXTS if text])
    last = torch.full((10,), BOS)
    expected, _ = model.network.step(last, model.network.start(sources, 2))
    found, _ = scorer.step(last, scorer.start(sources, 2))
    torch.testing.assert_close(found, expected)


def test_each_source_chooses_from_its_own_list_whatever_its_batch(listed: Path) -> None:
    """Law 4, and outputs of source words alone: each leads to itself first."""
    model = seqloom.load(listed)
    together = model(TEXTS, beam=3, shortlist=1)
    alone = [model(text, beam=3, shortlist=1) for text in TEXTS]
    for one, other in zip(together, alone, strict=True):
        assert one.text == other.text
        assert one.token_scores == pytest.approx(other.token_scores, abs=1e-5)
        assert set(one.text.split()) <= set(one.source.split())
    assert together[0].text == "bee ant"


def test_what_is_forced_is_on_the_list(listed: Path) -> None:
    model = seqloom.load(listed)
    assert model("ant bee", beam=3, shortlist=1, prefix="hen").text.startswith("hen")
    assert "fox" in model("ant bee", beam=3, shortlist=1, must=("fox",)).text.split()
    streamed = "".join(model.stream("cat dog", beam=2, shortlist=2))
    assert streamed == model("cat dog", beam=2, shortlist=2).text
    options = model.alternatives("ant bee", prefix="hen", k=2, shortlist=1)
    assert all(one.prediction.text.startswith("hen") for one in options)


def test_what_words_lead_to_can_be_looked_at(listed: Path, seqloom: Command) -> None:
    import seqloom as package

    found = leads_to(package.load(listed), "ant hen", 3)
    assert [token for token, _ in found] == ["ant", "hen"]
    assert [words[0] for _, words in found] == ["ant", "hen"]
    shown = seqloom("lexicon", listed, "--show", "ant hen", "--json")
    assert shown.code == 0
    assert '"leads_to"' in shown.out


def test_the_command_learns_it_and_predict_uses_it(listed: Path, tmp_path: Path, seqloom: Command) -> None:
    run = Path(shutil.copytree(listed, tmp_path / "run"))
    (run / FILE).unlink()
    missing = seqloom("predict", run, "-t", "ant bee", "--shortlist", "3")
    assert missing.code == 4
    assert "seqloom lexicon" in missing.err
    told = seqloom("lexicon", run)
    assert told.code == 0
    assert "100.0 %" in told.out
    assert "--shortlist" in told.err
    assert seqloom("predict", run, "-t", "ant bee", "--shortlist", "3", "-q").out == "bee ant\n"


def test_a_shortlist_beside_a_pattern_is_refused(listed: Path, seqloom: Command) -> None:
    refused = seqloom("predict", listed, "-t", "ant", "--shortlist", "3", "--pattern", "ant")
    assert refused.code == 2
    assert "shortlist" in refused.err


def test_a_shortlist_longer_than_the_lexicon_is_refused(listed: Path, tmp_path: Path, seqloom: Command) -> None:
    import seqloom as package

    run = Path(shutil.copytree(listed, tmp_path / "run"))
    whole = package.load(run).lexicon
    Lexicon(whole.leads_to[:, :3].contiguous(), whole.anywhere).save(run)
    refused = seqloom("predict", run, "-t", "ant", "--shortlist", "4")
    assert refused.code == 2
    assert "at most 3" in refused.err
    assert seqloom("predict", run, "-t", "ant", "--shortlist", "3").code == 0


def test_an_ensemble_has_no_shortlist(listed: Path, seqloom: Command) -> None:
    refused = seqloom("predict", listed, listed, "--ensemble", "-t", "ant", "--shortlist", "3")
    assert refused.code == 2
    assert "output matrix" in refused.err


def test_without_its_pairs_a_run_has_nothing_to_learn_from(run: Path, seqloom: Command) -> None:
    shutil.rmtree(run / "cache")
    refused = seqloom("lexicon", run)
    assert refused.code == 6
    assert "training pairs" in refused.err
