"""An exported Transformer says what the model says, to the last token, and without torch."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import seqloom
from damage import damaged
from seqloom.api.bench import bench
from seqloom.api.engine import Engine, load_engine
from seqloom.api.export import export_run
from seqloom.api.train import Run, train
from seqloom.batch import Batch, Tokens
from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.export.ctranslate2 import places, write
from seqloom.models.generator import Generator
from seqloom.models.model import MODELS, EncoderDecoder
from seqloom.recipe import recipe_from
from seqloom.specials import EOS, SPECIALS

ctranslate2 = pytest.importorskip("ctranslate2")

VOCABULARY = 30
PIECES = [*SPECIALS, *(f"t{i}" for i in range(VOCABULARY - len(SPECIALS)))]


def network(**changes: object) -> Generator:
    """A small model with weights that are not the drawn ones: norms and biases have something to say."""
    stack = {"kind": "transformer", "width": 32, "layers": 2, "heads": 4}
    stack |= {key: value for key, value in changes.items() if key in ("positions", "norm", "activation")}
    width = changes.get("embedding", 32)
    raw = {
        "source_embedding": {"width": width},
        "target_embedding": {"width": width},
        "encoder": changes.get("encoder", stack),
        "decoder": changes.get("decoder", stack),
        **{key: changes[key] for key in ("shared", "tied", "head") if key in changes},
    }
    settings = validated(EncoderDecoder.Settings, raw, "test")
    torch.manual_seed(1)
    made = MODELS.build(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return made.eval()


ARCHITECTURES: dict[str, dict[str, object]] = {
    "sinusoidal, pre-norm": {"positions": "sinusoidal"},
    "rotary, tied and shared": {"positions": "rotary", "tied": True, "shared": True},
    "learned, post-norm, gelu": {
        "positions": {"kind": "learned", "max_length": 40},
        "norm": "post",
        "activation": "gelu",
    },
    "halves, post-norm, silu": {
        "positions": {"kind": "sinusoidal", "layout": "halves"},
        "norm": "post",
        "activation": "silu",
        "epsilon": 1e-3,
    },
    "rotary, swiglu, narrow embeddings": {"positions": "rotary", "activation": "swiglu", "embedding": 16},
    "narrow and tied: a projection on both sides": {"embedding": 16, "tied": True, "norm": "post"},
    "no bias in the output layer": {"head": {"kind": "linear", "bias": False}},
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_exported_model_gives_every_token_the_same_probability(name: str, tmp_path: Path) -> None:
    made = network(**ARCHITECTURES[name])
    with torch.no_grad():
        write(made, (PIECES, PIECES), tmp_path)
    sources = [[7, 8, 9], [10, 11, 12, 13, 14, 20], [6]]
    targets = [[9, 8, 7, 6], [12], [20, 21, 22, 23, 24, 25]]
    batch = Batch(
        {"source": Tokens.pad([[*row, EOS] for row in sources])}, Tokens.pad([[*row, EOS] for row in targets])
    )
    with torch.inference_mode():
        expected = -made.nll(batch)
    translator = ctranslate2.Translator(str(tmp_path), inter_threads=1, intra_threads=1)
    told = translator.score_batch(*([[PIECES[i] for i in row] for row in rows] for rows in (sources, targets)))
    for row, (target, found) in enumerate(zip(targets, told, strict=True)):
        assert found.log_probs == pytest.approx(expected[row, : len(target) + 1].tolist(), abs=5e-5)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"encoder": {"width": 8}}, "an encoder that is no Transformer"),
        ({"decoder": {"kind": "luong", "width": 8}}, "a decoder that is no Transformer"),
        ({"head": {"kind": "copy"}}, "an output layer that copies"),
        ({"head": {"kind": "mlp"}}, "an output layer that copies or has a hidden layer"),
    ],
)
def test_what_the_library_has_no_layers_for_is_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(SeqloomError, match=f"E_USAGE.*{complaint}"):
        places(network(**changes))


def test_tables_of_positions_say_how_far_they_reach() -> None:
    assert places(network(positions={"kind": "learned", "max_length": 40})) == (40, 40)
    assert places(network(positions="rotary")) == (None, None)


# --- a trained run ---------------------------------------------------------------------------------------------------

LETTERS = "abcdefgh"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Words and their reversal, upper-cased where a tag says so: not learned well, so that outputs differ in length."""
    folder = tmp_path_factory.mktemp("engine")
    rng = random.Random(1)
    words = sorted({"".join(rng.choice(LETTERS) for _ in range(rng.randint(2, 7))) for _ in range(300)})
    rows = [(word, word[::-1]) for word in words]
    (folder / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    stack = {"kind": "transformer", "width": 32, "layers": 1, "heads": 2, "positions": "rotary"}
    raw = {
        "data": {"train": str(folder / "pairs.tsv"), "split": {"dev": 0.1, "test": 0.1}, "limits": {"max_source": 20}},
        "source": {"tokenizer": "characters"},
        "target": {"tokenizer": "characters"},
        "model": {"encoder": stack, "decoder": stack},
        "batching": {"tokens": 256},
        "training": {"steps": 60, "optimiser": {"kind": "adam", "lr": 0.003}},
        "evaluation": {"metrics": ["exact"], "validate_examples": 10},
        "runtime": {"threads": 1},
    }
    done = train(recipe_from(raw, "test"), folder / "run")
    export_run(done.folder)
    return done


@pytest.fixture(scope="module")
def engine(run: Run) -> Engine:
    return load_engine(run.folder, threads=1, told=True)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = random.Random(2)
    return ["".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 9))) for _ in range(60)] + ["", "  ", "xyz"]


@pytest.mark.parametrize(
    "options",
    [{"beam": 1}, {"beam": 4}, {"beam": 1, "max_length": 3}, {"beam": 3, "max_ratio": 0.5, "max_length": 2}],
    ids=str,
)
def test_an_engine_answers_as_the_model_does(
    run: Run, engine: Engine, texts: list[str], options: dict[str, object]
) -> None:
    model = seqloom.load(run.folder, device="cpu")
    for ours, theirs in zip(model(texts, **options), engine(texts, **options), strict=True):
        assert theirs.text == ours.text
        assert (theirs.skipped, theirs.unknown) == (ours.skipped, ours.unknown)
        assert theirs.confidence == pytest.approx(ours.confidence, abs=1e-4)
        assert theirs.best.truncated == ours.best.truncated
        assert theirs.best.log_prob == pytest.approx(ours.best.log_prob, abs=1e-4)
        assert theirs.score == pytest.approx(ours.score, abs=1e-4)
        assert theirs.token_scores == pytest.approx(ours.token_scores, abs=1e-4)


@pytest.mark.parametrize(
    "options", [{"beam": 4, "n_best": 3}, {"beam": 3, "min_length": 6}, {"beam": 3, "prefix": "ba"}]
)
def test_where_the_search_differs_scores_are_still_the_model_s(
    run: Run, engine: Engine, texts: list[str], options: dict[str, object]
) -> None:
    """The library stops by other rules, and a forbidden end has no probability there: most outputs are the same."""
    model = seqloom.load(run.folder, device="cpu")
    ours, theirs = model(texts, **options), engine(texts, **options)
    assert sum(a.text == b.text for a, b in zip(ours, theirs, strict=True)) >= 0.7 * len(texts)
    for prediction in theirs:
        for output in () if prediction.skipped else prediction.hypotheses:
            forced = model.score([(prediction.source, output.text)])[0]
            assert output.text.startswith(str(options.get("prefix", "")))
            assert len(output.tokens) >= int(str(options.get("min_length", 0)))
            if not output.truncated:
                assert output.token_scores == pytest.approx(forced.token_scores, abs=1e-4)
                assert output.log_prob == pytest.approx(forced.log_prob, abs=1e-3)


def test_an_answer_does_not_depend_on_its_neighbours(engine: Engine, texts: list[str]) -> None:
    """Law 4: limits are those of a source, not of a batch."""
    together = engine(texts, beam=3, max_ratio=1.0)
    alone = [engine(text, beam=3, max_ratio=1.0) for text in texts]
    assert [one.text for one in together] == [one.text for one in alone]


def test_an_engine_runs_without_torch(run: Run) -> None:
    code = (
        "import sys; from seqloom.cli.main import run; "
        f"code = run(['predict', {str(run.folder)!r}, '-t', 'abc', '--engine', 'ctranslate2', '-q']); "
        "sys.exit(code or ('torch' in sys.modules) * 99)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == load_engine(run.folder)("abc").text


@pytest.mark.parametrize("quantised", ["int8", "bfloat16"])
def test_weights_in_fewer_bits_answer_nearly_the_same(
    run: Run, texts: list[str], quantised: str, tmp_path: Path
) -> None:
    place = export_run(run.folder, tmp_path / "small", quantised)
    ours = [one.text for one in seqloom.load(run.folder, device="cpu")(texts, beam=1)]
    theirs = [one.text for one in load_engine(place, threads=1)(texts, beam=1)]
    assert sum(a == b for a, b in zip(ours, theirs, strict=True)) >= 0.8 * len(texts)


def test_every_way_is_measured_in_turns(run: Run) -> None:
    found = bench(run.folder, beams=(1, 3), batches=(1, 8), engines=("ctranslate2", "seqloom"), seconds=0.0, windows=2)
    ways = [(speed.way.engine, speed.way.beam, speed.way.batch) for speed in found.speeds]
    assert ways == [(engine, beam, size) for engine in ("seqloom", "ctranslate2") for beam in (1, 3) for size in (1, 8)]
    for speed in found.speeds:
        assert speed.windows == 2
        assert speed.tokens_per_second > 0
        assert 0 < speed.seconds <= speed.seconds_95
    assert json.loads(json.dumps(found.as_dict()))["machine"]["cores"] >= 1


def test_faults_name_their_fix(run: Run, engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(SeqloomError, match=r"E_FILE.*seqloom export RUN"):
        load_engine(tmp_path / "nothing")
    with pytest.raises(SeqloomError, match=r"E_BUNDLE.*not exported yet.*seqloom export RUN"):
        load_engine(tmp_path)
    with pytest.raises(SeqloomError, match=r"E_USAGE.*'int3'.*one of: int8"):
        export_run(run.folder, tmp_path / "x", "int3")
    with pytest.raises(SeqloomError, match=r"E_USAGE.*n_best 9 is over"):
        engine("abc", n_best=9)
    with pytest.raises(SeqloomError, match=r"E_USAGE.*cannot say 'q'"):
        engine("abc", prefix="q")
    with pytest.raises(SeqloomError, match=r"E_LONG"):
        engine("abc" * 20)
    assert engine("abc" * 20, on_long="skip").skipped


def test_an_export_of_older_weights_is_refused(run: Run, tmp_path: Path) -> None:
    """A run may be trained on after it was exported; a folder of its own stands for itself."""
    copy = Path(shutil.copytree(run.folder, tmp_path / "run"))
    load_engine(copy)
    card = json.loads((copy / "bundle" / "card.json").read_text())
    card["files"]["weights.safetensors"]["sha256"] = "0" * 64
    (copy / "bundle" / "card.json").write_text(json.dumps(card))
    with pytest.raises(SeqloomError, match=r"E_BUNDLE.*trained on after it was exported.*'seqloom export' again"):
        load_engine(copy)
    load_engine(Path(shutil.copytree(copy / "ctranslate2", tmp_path / "apart")))


def test_a_damaged_export_is_refused(run: Run, tmp_path: Path) -> None:
    """Whatever of it is damaged, and however."""
    place = export_run(run.folder, tmp_path / "engine")
    for name in damaged(place, "engine.json"):
        with pytest.raises(SeqloomError, match="E_BUNDLE") as no:
            load_engine(place)
        assert name in no.value.where
    load_engine(place)
    card = json.loads((place / "engine.json").read_text())
    wrong = {"beam": {**card, "taken": {**card["taken"], "beam": 0}}, "model.bin": {**card, "files": {}}}
    for name, changed in wrong.items():
        (place / "engine.json").write_text(json.dumps(changed))
        with pytest.raises(SeqloomError, match=f"E_BUNDLE.*{name}"):
            load_engine(place)
