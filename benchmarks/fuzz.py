"""What happens to made-up files and requests: does anything get past the refusals, crash or hang?

    python benchmarks/fuzz.py [--seconds 60] [--engine random|atheris] [--target NAME ...]

Targets are recipes, vocabularies, cards, headers of weight files, sentencepiece models, arrays and HTTP bodies. Inputs
are right ones with bytes and words changed, and plain noise; atheris, where it is installed, looks for inputs that
reach new lines instead. An input is a find when it ends in anything but an answer or a `SeqloomError` (HTTP: a status
of 500), or takes over ten seconds. Results go to benchmarks/results/fuzz.json.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType

from seqloom import cards, runtime, weights
from seqloom.bundle import BundleCard
from seqloom.config import parse_yaml
from seqloom.data.arrays import Header
from seqloom.data.tokenizers import TOKENIZERS
from seqloom.data.vocabulary import Vocabulary
from seqloom.errors import SeqloomError
from seqloom.recipe import recipe_from
from seqloom.training.checkpoints import CheckpointCard

RESULT = Path(__file__).parent / "results" / "fuzz.json"
SLOW = 10  # seconds that one input may take
Target = Callable[[bytes], bool]  # whether the input was accepted; it raises nothing but for a find

_TENSORS = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
_CARD = {"format": 1, "seqloom": "0.1.0", "files": {"recipe.yaml": {"size": 0, "sha256": ""}}, "about": {}}
_HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"
_OPEN: list[object] = []  # servers, until the process ends
SEEDS: dict[str, list[bytes]] = {
    "recipe": [
        b"data: {train: a.tsv}\nmodel: {encoder: {kind: rnn, width: 8}, decoder: bahdanau}\ntraining: {steps: 3}\n",
        b"data:\n  train: [{path: a.tsv, share: 0.5}, b.tsv]\nsource: {tokenizer: {kind: bpe, size: 100}}\n"
        b"training: {epochs: 1, optimiser: {kind: adam, lr: 1e-3}}\n",
    ],
    "vocabulary": [b"a\t3\nb\t2\n\\\\\t1\n", "ä\nö\n\\\\\n".encode()],
    "card": [json.dumps(_CARD).encode()],
    "checkpoint": [json.dumps({"format": 1, "step": 1, "files": {}, "numbers": {"counters": {"step": 1}}}).encode()],
    "weights": [struct.pack("<Q", len(_TENSORS)) + _TENSORS + bytes(8)],
    "array": [b"\x93NUMPY\x01\x00v\x00" + _HEADER.ljust(117) + b"\n" + bytes(16)],
    "sentencepiece": [],
    "http": [
        b'{"inputs": "abc"}',
        b'{"inputs": ["abc", "b"], "n_best": 2, "options": {"beam": 2, "max_length": 5}, "wanted": ["tokens"]}',
        b'{"q": "abc", "source": "en", "target": "ne"}',
        b'{"pairs": [{"source": "abc", "target": "cba"}]}',
    ],
}
WORDS = [b"null", b"true", b"-1", b"1e400", b"NaN", b"{}", b"[]", b'""', b"..", b"/etc/passwd", b"\\u0000", b"&a [*a]"]
WORDS += [b"9" * 5000, b"[" * 2000, b"\xff\xfe", b"!!python/name:os.system", b"<<: *a", b"\xed\xa0\x80", b"\x00"]


def mutant(name: str) -> Callable[[random.Random], bytes]:
    """Something like a right input: some bytes and words of it changed."""

    def made(draw: random.Random) -> bytes:
        data = bytearray(draw.choice(SEEDS[name]) if SEEDS[name] else b"")
        for _ in range(draw.randint(1, 6)):
            place, length = draw.randint(0, len(data)), draw.randint(0, 8)
            kind = draw.randrange(4)
            if kind == 0:
                data[place : place + length] = draw.choice(WORDS)
            elif kind == 1:
                data[place : place + length] = draw.randbytes(length)
            elif kind == 2:
                del data[place : place + 4 * length]
            else:
                data[place:place] = data[max(0, place - 4 * length) : place] * draw.randint(1, 3)
        return bytes(data)

    return made


# --- targets -------------------------------------------------------------------------------------------------------


def targets(folder: Path, served: bool = True) -> dict[str, Target]:
    """What reads each kind of input; `folder` is for files. With `served` a server is started."""
    if not SEEDS["sentencepiece"]:
        SEEDS["sentencepiece"].append(_sentencepiece())

    def lying(name: str, read: Callable[[Path], object]) -> Target:
        def target(data: bytes) -> bool:
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            return _accepted(lambda: read(path))

        return target

    def tokenizer(path: Path) -> object:
        found = TOKENIZERS["bpe"].load(TOKENIZERS.settings("bpe"), path.parent)
        return found.encode("hello world") and found.pieces()

    found: dict[str, Target] = {"http": _served()} if served else {}
    return found | {
        "recipe": lambda data: _accepted(lambda: recipe_from(_mapping(data), "fuzz")),
        "vocabulary": lying("vocabulary.txt", Vocabulary.load),
        "card": lying("card.json", lambda path: cards.read(path, BundleCard, "")),
        "checkpoint": lying("checkpoint.json", lambda path: cards.read(path, CheckpointCard, "")),
        "weights": lying("weights.safetensors", weights.read),
        "array": lying("array.npy", lambda path: Header.read(str(path)).values().sum()),
        "sentencepiece": lying("sentencepiece.model", tokenizer),
    }


def _accepted(read: Callable[[], object]) -> bool:
    try:
        read()
    except SeqloomError:
        return False
    return True


def _mapping(data: bytes) -> dict[str, object]:
    raw = parse_yaml(data.decode("utf-8", "replace"), "fuzz")
    if not isinstance(raw, dict):
        raise SeqloomError("E_RECIPE", "a recipe is a mapping of keys")
    return raw


def _sentencepiece() -> bytes:
    import io

    import sentencepiece

    model = io.BytesIO()
    texts = ["hello world", "worlds of words", "hold the word"] * 5
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=30, model_type="bpe", minloglevel=2
    )
    return model.getvalue()


def _served() -> Target:
    """A real server of a tiny run, in a thread."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from commands import trained
    from seqloom.serve.limits import Limits
    from serving import serving

    server = serving(trained(), limits=Limits(rate="none"))
    _OPEN.append(server)
    asking, _ = server.__enter__()
    paths = ("/v1/predict", "/v1/score", "/v1/explain", "/translate", "/detect")

    def target(data: bytes) -> bool:
        kind = {"content-type": "application/json"}
        statuses = [asking.post(path, content=data, headers=kind).status_code for path in paths]
        if 500 in statuses:
            raise RuntimeError(f"statuses {dict(zip(paths, statuses, strict=True))}")
        return any(status < 300 for status in statuses)

    return target


# --- running -------------------------------------------------------------------------------------------------------


def at_random(name: str, target: Target, seconds: float, seed: int = 1) -> dict[str, object]:
    draw, made = random.Random(seed), mutant(name)
    finds: dict[str, str] = {}
    runs = accepted = 0
    signal.signal(signal.SIGALRM, _too_slow)
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        data = draw.randbytes(draw.randint(0, 300)) if draw.random() < 0.1 else made(draw)
        runs += 1
        signal.alarm(SLOW)
        try:
            accepted += bool(target(data))
        except Exception as error:
            kind = f"{type(error).__name__}: {str(error)[:200]}"
            if len(finds) < 20:
                finds.setdefault(kind, data[:400].hex())
        finally:
            signal.alarm(0)
    return {"runs": runs, "accepted": accepted, "seconds": round(seconds), "finds": finds}


def _too_slow(number: int, frame: object) -> None:
    raise TimeoutError(f"over {SLOW} s")


def by_atheris(name: str, target: Target, seconds: int, folder: Path) -> None:
    """libFuzzer takes the process over; a find is a file `crash-...` in the folder, and its trace on stderr."""
    import atheris  # type: ignore[import-not-found]

    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (corpus / str(number)).write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-timeout={SLOW}", f"-artifact_prefix={folder}/", str(corpus)]
    for module in [one for name, one in sys.modules.items() if name.startswith("seqloom")]:
        for function in vars(module).values():
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                atheris.instrument_func(function)
    atheris.Setup([sys.argv[0], *options], lambda data: target(data) and None)
    atheris.Fuzz()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--engine", choices=["random", "atheris"], default="random")
    parser.add_argument("--target", action="append", choices=[*SEEDS])
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        every = targets(Path(place), served=asked.target is None or "http" in asked.target)
        chosen = asked.target or list(every)
        if asked.engine == "atheris":
            if find_spec("atheris") is None:
                raise SystemExit("atheris is not installed (pip install atheris), --engine random needs nothing")
            return by_atheris(chosen[0], every[chosen[0]], asked.seconds, Path(tempfile.mkdtemp()))
        found = {}
        for name in chosen:
            found[name] = at_random(name, every[name], asked.seconds)
            print(name, json.dumps(found[name]), flush=True)
    about = {"machine": runtime.describe(), "date": datetime.now(UTC).date().isoformat(), "engine": asked.engine}
    RESULT.write_text(json.dumps({**about, "targets": found}, indent=1) + "\n")
    sys.exit(any(one["finds"] for one in found.values()))


if __name__ == "__main__":
    main()
