"""Write the tables of README and docs/results.md from the files that `recipes/measure.py` and `benchmarks/` wrote.

python docs/results.py          # rewrite the blocks between their markers
python docs/results.py --check  # say whether they are up to date

The README shows a choice (`TOLD`, `ASKED`), docs/results.md all of it.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

from seqloom.config import read_yaml

ROOT = Path(__file__).parents[1]
README, ALL = ROOT / "README.md", ROOT / "docs" / "results.md"
PEERS, GPU = "benchmarks/results/peers.json", "benchmarks/results/gpu.json"
PRETRAINING = "benchmarks/results/pretraining.json"
LOAD, START = "benchmarks/results/load.json", "benchmarks/results/start.json"
TOLD = (  # result files that the README shows
    "demo-pronunciation",
    "demo-dates",
    "translation-vector",
    "translation-bahdanau",
    "translation-transformer",
    "pronunciation-medium-cpu",
    "pronunciation-large",
    "inflection",
    "commands",
    "classification",
    "tagging",
    "speech-an4-transformer",
    "captions-attend",
)
ASKED = ("train-transformer", "train-lstm-feeding", "train-characters", "predict-beam", "predict-lstm", "sentence")

ROWS = [  # task, recipe, result file, scores to show
    (
        "English spelling to phonemes",
        "`seqloom demo`",
        "benchmarks/results/demo-pronunciation.json",
        {"string_error": "SER", "per": "PER"},
    ),
    (
        "date phrases of 25 languages to ISO dates",
        "`seqloom demo dates`",
        "benchmarks/results/demo-dates.json",
        {"exact": "exact match"},
    ),
    *(
        (
            f"German to English, {how}",
            f"[translation-{name}](recipes/translation-{name}.yaml)",
            f"recipes/results/translation-{name}.json",
            {"bleu": "BLEU, lower-cased"},
        )
        for name, how in {
            "joint": "one LSTM for both sides",
            "vector": "LSTM, one vector and no attention",
            "reversed": "the same, source reversed",
            "context": "the same, the vector at every step",
            "bahdanau": "LSTM with attention (Bahdanau)",
            "luong": "LSTM with attention (Luong)",
            "feeding": "the same with input feeding",
            "transformer": "Transformer",
        }.items()
    ),
    *(
        (
            f"English to {language}, Transformer",
            "[translation-transformer](recipes/translation-transformer.yaml)",
            f"recipes/results/translation-transformer-en-{end}.json",
            {"bleu": "BLEU"},
        )
        for language, end in {"German": "de", "French": "fr"}.items()
    ),
    *(
        (
            f"{language} spelling to phonemes",
            f"[pronunciation-{size}](recipes/pronunciation-{size}.yaml)",
            f"recipes/results/pronunciation-{size}{end}.json",
            {"string_error": "SER", "per": "PER"},
        )
        for language, (size, end) in {
            "Icelandic": ("small", ""),
            "Italian": ("small-lstm", "-ita"),
            "Adyghe": ("small-lstm", "-ady"),
            "Italian, more convolutions,": ("small", "-ita"),
            "Adyghe, more convolutions,": ("small", "-ady"),
            "French": ("medium", ""),
            "French, on a CPU,": ("medium", "-cpu"),
            "Dutch": ("medium", "-dut"),
            "Korean": ("medium", "-kor"),
            "Japanese": ("medium", "-jpn"),
            "English (SIGMORPHON 2021)": ("medium", "-eng"),
            "English (CMUdict)": ("large", ""),
            "English (CMUdict), AdamW and SwiGLU, 140 epochs,": ("large", "-swiglu"),
        }.items()
    ),
    (
        "Arabic names to Latin letters",
        "[transliteration](recipes/transliteration.yaml)",
        "recipes/results/transliteration.json",
        {"cer": "CER"},
    ),
    *(
        (
            f"{language} lemma and tags to the inflected form",
            "[inflection](recipes/inflection.yaml)",
            f"recipes/results/inflection{end}.json",
            {"exact": "exact match"},
        )
        for language, end in {
            "Turkish": "",
            "English": "-en",
            "German": "-de",
            "Finnish": "-fi",
            "Spanish": "-es",
        }.items()
    ),
    *(
        (
            f"commands to actions (SCAN, {split})",
            "[commands](recipes/commands.yaml)",
            f"recipes/results/commands{end}.json",
            {"exact": "exact match"},
        )
        for split, end in {
            "simple": "",
            "new verb: made to be failed": "-jump",
            "longer: made to be failed": "-length",
        }.items()
    ),
    *(
        (
            f"{task}, {how}",
            "[classification](recipes/classification.yaml)",
            f"recipes/results/classification{end}{model}.json",
            {"accuracy": "accuracy"},
        )
        for task, end in {
            "questions to their kind (TREC)": "",
            "sentences of film reviews to good or bad (SST-2)": "-sst2",
            "sentences of film reviews to good or bad (MR, one fold of ten)": "-mr",
        }.items()
        for how, model in {"convolution": "", "bag of vectors": "-bag"}.items()
    ),
    (
        "a spoken digit to its label (a part of FSDD)",
        "[spoken-digits](recipes/spoken-digits.yaml)",
        "recipes/results/spoken-digits.json",
        {"accuracy": "accuracy"},
    ),
    (
        "strings of spoken digits to letters (FSDD, unseen clips)",
        "[speech-digits](recipes/speech-digits.yaml)",
        "recipes/results/speech-digits.json",
        {"wer": "WER"},
    ),
    *(
        (
            f"the same of a speaker that training has not ({speaker})",
            "[speech-digits](recipes/speech-digits.yaml)",
            f"recipes/results/speech-digits-{speaker}.json",
            {"wer": "WER"},
        )
        for speaker in ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
    ),
    *(
        (
            f"read speech to words from cepstra (AN4), {how}",
            "[speech-an4](recipes/speech-an4.yaml)",
            f"recipes/results/speech-an4{end}.json",
            {"wer": "WER"},
        )
        for how, end in {"listen, attend and spell": "", "convolutions and a Transformer": "-transformer"}.items()
    ),
    *(
        (
            f"emoji pictures to their names, new combinations, {how}",
            f"[captions-{name}](recipes/captions-{name}.yaml)",
            f"recipes/results/captions-{name}.json",
            {"exact": "exact match", "bleu": "BLEU"},
        )
        for how, name in {"one vector (show and tell)": "vector", "attention (show, attend and tell)": "attend"}.items()
    ),
    (
        "aerial photographs to one of 21 kinds of land (UC Merced, 64 x 64)",
        "[scenes](recipes/scenes.yaml)",
        "recipes/results/scenes.json",
        {"accuracy": "accuracy"},
    ),
    *(
        (
            f"does one sentence follow from another ({name}), {how}",
            "[entailment](recipes/entailment.yaml)",
            f"recipes/results/entailment{end}{model}.json",
            {"accuracy": "accuracy"},
        )
        for name, end in {"SICK": "", "SNLI, its small part": "-snli"}.items()
        for how, model in {"compared word by word": "", "bags of vectors": "-bag"}.items()
    ),
    *(
        (
            f"how much two sentences have to do with each other (SICK), {how}",
            "[relatedness](recipes/relatedness.yaml)",
            f"recipes/results/relatedness{model}.json",
            {"pearson": "Pearson", "spearman": "Spearman", "mse": "MSE"},
        )
        for how, model in {"compared word by word": "", "bags of vectors": "-bag"}.items()
    ),
    (
        "English words to parts of speech (UD EWT)",
        "[tagging](recipes/tagging.yaml)",
        "recipes/results/tagging.json",
        {"accuracy": "accuracy"},
    ),
    (
        "the emotions that occur in a dialogue, several or none (DailyDialog)",
        "[emotions](recipes/emotions.yaml)",
        "recipes/results/emotions.json",
        {"multilabel_f1": "micro F1", "set_accuracy": "right sets"},
    ),
    (
        "the right reply among 100 (DailyDialog), bags of vectors",
        "[retrieval](recipes/retrieval.yaml)",
        "recipes/results/retrieval.json",
        {"recall_at": "recall@1", "recall@10": "recall@10"},
    ),
    (
        "the right reply among 100 (DailyDialog), TF-IDF",
        "`benchmarks/tfidf.py`",
        "benchmarks/results/tfidf.json",
        {"recall_at": "recall@1", "recall@10": "recall@10"},
    ),
    *(
        (
            f"{task}, no model: its first sentence",
            "`benchmarks/lead.py`",
            f"benchmarks/results/lead-{name}.json",
            {"rouge_1": "ROUGE-1", "rouge_2": "ROUGE-2", "rouge_l": "ROUGE-L"},
        )
        for name, task in {
            "aeslc": "the subject line of an e-mail (AESLC)",
            "scitldr": "an abstract in one sentence (SciTLDR, dev)",
        }.items()
    ),
    (
        "a question about a text of WebNLG, no model: a frequent answer that stands there",
        "`benchmarks/remembered.py`",
        "benchmarks/results/remembered.json",
        {"answer_exact": "exact match", "answer_f1": "token F1"},
    ),
    *(
        (
            f"letters of plays, one after the other (tiny Shakespeare), no model: {how}",
            "`benchmarks/ngrams.py`",
            f"benchmarks/results/ngrams-{order}.json",
            {"nll": "nats by letter", "bits_per_character": "bits"},
        )
        for order, how in {1: "how often each is", 7: "counts of seven (Kneser-Ney)"}.items()
    ),
    (
        "letters of plays, one after the other (tiny Shakespeare)",
        "[language](recipes/language.yaml)",
        "recipes/results/language.json",
        {"nll": "nats by letter", "bits_per_character": "bits"},
    ),
    (
        "letters of plays, one after the other (tiny Shakespeare), Transformer on a GPU",
        "[language-large](recipes/language-large.yaml)",
        "recipes/results/language-large.json",
        {"nll": "nats by letter", "bits_per_character": "bits"},
    ),
]


def machine(result: dict[str, object]) -> str:
    described = result["machine"]
    assert isinstance(described, dict)
    busy = described.get("shared", False) or described.get("load", 0) > described["threads"] + 1
    beside = ", shared with other trainings" if busy else ""
    if result["device"] == "cuda":
        return f"one {described['gpu']}{beside}"
    cores = described["threads"]
    return f"{cores} CPU core{'' if cores == 1 else 's'}{beside}"


def changed(result: dict[str, object]) -> bool:
    """Does the recipe say something else now than when this was measured? (Older files do not tell.)"""
    if "recipe_sha256" not in result:
        return False
    says = read_yaml(ROOT / "recipes" / f"{result['recipe']}.yaml")
    return hashlib.sha256(json.dumps(says, sort_keys=True).encode()).hexdigest() != result["recipe_sha256"]


def said(scores: dict[str, dict[str, float]], shown: dict[str, str]) -> str:
    return "; ".join(f"{name} {figure(scores[kind])}" for kind, name in shown.items())


def figure(score: dict[str, float]) -> str:
    """With its interval, where there is one."""
    if score["low"] is None:
        return f"{score['value']:.3f}"
    digits = 1 if score["value"] >= 1 else 3  # squared errors are small
    return f"{score['value']:.{digits}f} ({score['low']:.{digits}f} to {score['high']:.{digits}f})"


def row(task: str, recipe: str, file: str, shown: dict[str, str]) -> str:
    result = json.loads((ROOT / file).read_text())
    scores = said(result["scores"], shown)
    if "ensemble" in result:
        scores += f"; {members(result['runs'])} as one model: {said(result['ensemble'], shown)}"
    seconds = result.get("total_seconds", result["training_seconds"])
    took = f"{seconds / 60:.1f} min on {machine(result)}"
    if changed(result):
        recipe += ", as it was then"
    return f"| {task} | {result['pairs']:,} | {recipe} | {scores} | {took} | [{result['date']}]({file}) |"


def members(runs: list[dict[str, object]]) -> str:
    """How many runs answered together, and of which other recipes some of them are."""
    first, *others = Counter(str(run["recipe"]) for run in runs).items()
    return " and ".join([f"{first[1]} seeds", *(f"{count} of {recipe}" for recipe, count in others)])


def results(some: bool = False) -> list[str]:
    return [
        "| your task | pairs | recipe | score (95 % interval) | time | measured |",
        "|---|---|---|---|---|---|",
        *(row(*parts) for parts in ROWS if not some or Path(parts[2]).stem in TOLD),
    ]


def peers(some: bool = False) -> list[str]:
    """Every question that was asked of seqloom and of others: its figure, and how many times theirs it is."""
    found = json.loads((ROOT / PEERS).read_text())
    lines = ["| on two CPU cores | seqloom | times as fast as | measured |", "|---|---|---|---|"]
    for key, question in found.items():
        if some and key not in ASKED:
            continue
        for name, ratios in question["ratios"].items():
            how = name.removeprefix("seqloom").strip(" ,")
            if some and how and how != "--int8":
                continue
            figure = f"{question['contenders'][name][question['unit']]:,.0f} {question['unit'].split('_')[0]}/s"
            others = sorted(((ratio, other) for other, ratio in ratios.items()), reverse=True)
            told = ", ".join(f"{other} {ratio:.2f}" for ratio, other in others)
            what = question["what"] + (f" ({how})" if how else "")
            lines.append(f"| {what} | {figure} | {told} | [{question['date']}]({PEERS}) |")
    return lines


def gpu(some: bool = False) -> list[str]:
    """What one GPU does, and what share that is of the same work recorded and replayed with nothing around it."""
    found = json.loads((ROOT / GPU).read_text())
    asked = {
        "train a Transformer of 3 + 3 layers, 256 wide": found["train-transformer"],
        "train a bidirectional LSTM 512 and a Bahdanau LSTM 512": found["train-bahdanau"],
        **{
            f"predict with the Transformer, beam 5, {how}": of
            for how, of in found["predict"].items()
            if "batches" in how
        },
        "predict with the Transformer, beam 5, one sentence at a time": found["predict"]["one sentence"],
    }
    date, whole = found["train-transformer"]["date"], found["bundle"]
    return [
        f"| on one {found['train-transformer']['machine']['gpu']}, Multi30k, training in batches of 4,096 tokens "
        "| tokens/s | share of the ceiling | measured |",
        "|---|---|---|---|",
        *(
            f"| {what} | {of['tokens_per_second']:,} | {100 * of['share_of_ceiling']:.0f} % | [{date}]({GPU}) |"
            for what, of in asked.items()
        ),
        f"| from raw text to a bundle of BLEU {whole['bleu']:.1f} (lower-cased, test2016) "
        f"| {whole['seconds']:.0f} seconds in all | | [{whole['date']}]({GPU}) |",
    ]


def served(some: bool = False) -> list[str]:
    """What a server bears, and how long a process takes that is started for one line."""
    load, start = (json.loads((ROOT / file).read_text()) for file in (LOAD, START))
    usual, over, soak, seconds = load["70 % of peak"], load["3 x peak"], load["soak"], start["seconds"]
    own = seconds["one line"] - seconds["import torch"]
    told = {
        "most lines a second of a server on one core": (
            f"{load['peak']}, {100 * load['peak / offline']:.0f} % of batched prediction on that core",
            LOAD,
            load,
        ),
        "at 70 % of that": (
            f"{usual['failed'] + usual['refused']} errors; p50 {usual['p50_ms']:.0f} ms, p99 {usual['p99_ms']:.0f} ms",
            LOAD,
            load,
        ),
        "at three times that": (
            f"{100 * load['goodput at 3 x / peak']:.0f} % of the most are answered; the others are refused within "
            f"{over['refused_p99_ms']:.0f} ms (p99)",
            LOAD,
            load,
        ),
        "ten minutes at half of it": (
            f"{soak['answered']:,} lines, {soak['failed']} errors; memory {soak['mb_before']:,.0f} MB before, "
            f"{soak['mb_after']:,.0f} MB after",
            LOAD,
            load,
        ),
        "one line, by a process of its own": (
            f"{seconds['one line']:.1f} s, of which torch takes {seconds['import torch']:.1f} s, seqloom {own:.1f} s; "
            f"by `--engine ctranslate2` {seconds['one line, --engine ctranslate2']:.1f} s",
            START,
            start,
        ),
        "`seqloom --help`": (f"{seconds['seqloom --help']:.1f} s", START, start),
    }
    return [
        "| a Transformer of 3 + 3 layers, beam 5 | seen | measured |",
        "|---|---|---|",
        *(f"| {what} | {seen} | [{of['date']}]({file}) |" for what, (seen, file, of) in told.items()),
    ]


def gains(some: bool = False) -> list[str]:
    """Test scores from scratch and from a pretrained run, same recipe, steps and seeds."""
    found = json.loads((ROOT / PRETRAINING).read_text())
    lines = [
        "| task; what it was pretrained on | labels | from scratch | pretrained | gain (95 % interval) | measured |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for task in found.values():
        name = task["metric"].partition(" (")[0]
        for one in task["portions"]:
            (low, high), share = one["interval"], f"{100 * one['share']:.0f} %"
            lines.append(
                f"| {task['task']} | {one['pairs']:,} ({share}) | {name} {one['scratch']['mean']:.1f} "
                f"| {one['begun']['mean']:.1f} | {one['gain']:+.1f} ({low:.1f} to {high:.1f}) "
                f"| [{task['date']}]({PRETRAINING}) |"
            )
    return lines


BLOCKS = {"results": results, "peers": peers, "gpu": gpu, "served": served, "gains": gains}


def written(text: str, some: bool) -> str:
    """The text with its blocks made anew; links of docs/results.md begin in its own folder."""
    for name, lines in BLOCKS.items():
        begin, end = f"<!-- {name}: begin (docs/results.py writes this) -->", f"<!-- {name}: end -->"
        if begin not in text:
            continue
        before, rest = text.split(begin)
        made = [line if some else re.sub(r"\]\((?=recipes/|benchmarks/)", "](../", line) for line in lines(some)]
        text = before + "\n".join([begin, *made, end]) + rest.split(end)[1]
    return text


def main() -> int:
    same = True
    for path, some in ((README, True), (ALL, False)):
        text = path.read_text(encoding="utf-8")
        new = written(text, some)
        same = same and new == text
        if "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
    return 0 if same or "--check" not in sys.argv else 1


if __name__ == "__main__":
    sys.exit(main())
