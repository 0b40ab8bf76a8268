"""`seqloom data`: what is known of the public sets, and tiny upstream files of every form laid out for the recipes."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import Command
from seqloom.api.public.catalogue import SETS
from seqloom.api.public.prepare import prepare
from seqloom.api.public.upstream import READINGS
from seqloom.errors import SeqloomError

pytest_plugins = ["command_fixtures"]
ROOT = Path(__file__).parents[2]


def put(folder: Path, **files: str) -> None:
    """Files by name, `__` for a dot and `_of_` for a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def multi30k(folder: Path) -> None:
    for part in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        for language in ("en", "de", "fr"):
            with gzip.open(folder / f"{part}.{language}.gz", "wt", encoding="utf-8") as file:
                file.write(f"{part} {language} a\n{part} {language} b\n")


def enja(folder: Path) -> None:
    put(
        folder, **{f"{part}.{side}": f"{part} {side} .\n" for part in ("train", "dev", "test") for side in ("en", "ja")}
    )


def scan(folder: Path) -> None:
    for inner, split in (("simple_split", "simple"), ("length_split", "length"), ("add_prim_split", "addprim_jump")):
        for part in ("train", "test"):
            put(folder, **{f"{inner}/tasks_{part}_{split}.txt": "IN: hop twice OUT: I_HOP I_HOP\n"})


def django(folder: Path) -> None:
    count = 17_003
    put(folder, **{"all.anno": "".join(f"say {i}.\n" for i in range(count))})
    put(folder, **{"all.code": "".join(f"print ( {i} )\n" for i in range(count))})


def e2e(folder: Path) -> None:
    text = 'mr,ref\n"name[The Mill], food[Thai]","The Mill, by the ""old"" river, is Thai."\n'
    put(folder, **dict.fromkeys(("trainset.csv", "devset.csv", "testset_w_refs.csv"), text))


def advising(folder: Path) -> None:
    sentences = [
        {
            "question-split": part,
            "text": "who teaches number1 or number10 ?",
            "variables": {"number1": "3", "number10": "7"},
        }
        for part in ("train", "dev", "test", "exclude")
    ]
    queries = [{"sql": ["SELECT A FROM B WHERE C = number1 OR C = number10 ;"], "sentences": sentences}]
    put(folder, **{"advising.json": json.dumps(queries)})


def webnlg(folder: Path) -> None:
    entry = (
        '<benchmark><entries><entry category="{}" eid="Id1"><modifiedtripleset>'
        "<mtriple>Old_Mill | river | Lune</mtriple><mtriple>Old_Mill | floors | 3</mtriple></modifiedtripleset>"
        "<lex>The Old Mill has 3\nfloors.</lex><lex>By the Lune.</lex></entry></entries></benchmark>"
    )
    for part, category in (("train", "Building"), ("dev", "Building"), ("test", "Building")):
        put(folder, **{f"{part}/one.xml": entry.format(category), f"{part}/two.xml": entry.format("Unseen")})


def aeslc(folder: Path) -> None:
    mail = "Dear Greta,\n\nthe rope\tis here.\n\n@subject\nthe rope\n\n@ann0\na rope\n\n@ann1\nrope\n\n@ann2\nit came\n"
    put(folder, **{f"enron_subject_line/{part}/a.subject": mail for part in ("train", "dev", "test")})


def pydocs(folder: Path) -> None:
    entry = '#: a\nmsgid ""\n"Open the "\n"file \\"x\\"."\nmsgstr "Ouvre le fichier « x »."\n'
    fuzzy = '#, fuzzy\nmsgid "Not yet sure."\nmsgstr "Pas encore."\n'
    header = 'msgid ""\nmsgstr "Language: fr\\n"\n'
    put(
        folder,
        **{f"library/part{i}.po": "\n".join([header, entry, fuzzy, 'msgid "Untold."\nmsgstr ""\n']) for i in range(60)},
    )


def tatoeba(folder: Path) -> None:
    lines = [f"I see {i} boats there.\tIch sehe dort {i} Boote.\tattribution\n" for i in range(400)]
    lines += ["I see 7 boats there.\tIch sehe da 7 Boote.\n", "Seven boats are what I see.\tIch sehe da 7 Boote.\n"]
    put(folder, **{"deu.txt": "".join(lines)})


def dailydialog(folder: Path) -> None:
    for part in ("train", "validation"):
        put(
            folder,
            **{
                f"{part}/dialogues_{part}.txt": "Is it late ? __eou__ No . __eou__\nHello . __eou__ Hi . __eou__\n",
                f"{part}/dialogues_act_{part}.txt": "2 1 \n1 1 1 \n",
                f"{part}/dialogues_emotion_{part}.txt": "0 4 \n0 0 \n",
            },
        )


def scitldr(folder: Path) -> None:
    paper = {
        "paper_id": "p1",
        "title": "Mills",
        "source": ["Mills turn.", "We say why."],
        "target": ["Water.", "Wind."],
    }
    put(folder, **{f"{part}.jsonl": json.dumps(paper) + "\n" for part in ("train", "dev")})


def plain(*names: str, text: str) -> Callable[[Path], None]:
    return lambda folder: put(folder, **dict.fromkeys(names, text))


G2P = [
    f"data/{size}/{language}_{part}.tsv"
    for size, languages in {
        "high": ["eng_us"],
        "medium": ["fre", "dut", "kor", "jpn_hira"],
        "low": ["ice", "ita", "ady"],
    }.items()
    for language in languages
    for part in ("train", "dev", "test")
]
INFLECTION = [
    f"task1/all/{language}-{part}"
    for language in ("english", "german", "finnish", "turkish", "spanish")
    for part in ("train-high", "dev", "test")
]
# For each set: a writer of tiny upstream files, one file that becomes of them, and its lines.
UPSTREAM: dict[str, tuple[Callable[[Path], None], str, list[str]]] = {
    "multi30k": (multi30k, "test2016.de.gz", ["test_2016_flickr de a", "test_2016_flickr de b"]),
    "enja-50k": (enja, "dev.ja.gz", ["dev ja ."]),
    "scan": (scan, "addprim_jump_test.tsv.gz", ["hop twice\tI_HOP I_HOP"]),
    "django-code": (django, "test.tsv.gz", [f"say {i}.\tprint ( {i} )" for i in range(17_000, 17_003)]),
    "e2e-nlg": (e2e, "train.tsv.gz", ["mr\tref", 'name[The Mill], food[Thai]\tThe Mill, by the "old" river, is Thai.']),
    "e2e-nlg-delexicalised": (
        e2e,
        "delexicalised_train.tsv.gz",
        ["mr\tref\tname\tnear", 'name[X_name], food[Thai]\tX_name, by the "old" river, is Thai.\tThe Mill\t'],
    ),
    "text2sql-advising": (
        advising,
        "test.tsv.gz",
        ["who teaches 3 or 7 ?\tSELECT A FROM B WHERE C = 3 OR C = 7 ;"],
    ),
    "webnlg2017": (
        webnlg,
        "test_seen.tsv.gz",
        [
            "category\tentry\tn_triples\ttriples\ttext",
            "Building\tId1\t2\tOld_Mill | river | Lune ; Old_Mill | floors | 3\tThe Old Mill has 3 floors.",
            "Building\tId1\t2\tOld_Mill | river | Lune ; Old_Mill | floors | 3\tBy the Lune.",
        ],
    ),
    "webnlg2017-questions": (
        webnlg,
        "questions_test.tsv.gz",
        [
            "The Old Mill has 3 floors.\t3\twhat is the floors of Old Mill ?\tfloors",
            "By the Lune.\tLune\twhat is the river of Old Mill ?\triver",
        ],
    ),
    "aeslc": (
        aeslc,
        "dev.tsv.gz",
        ["body\tsubject\tann0\tann1\tann2", "Dear Greta, the rope is here.\tthe rope\ta rope\trope\tit came"],
    ),
    "scitldr": (
        scitldr,
        "dev.tsv.gz",
        ["paper_id\ttitle\tabstract\ttldrs", "p1\tMills\tMills turn. We say why.\tWater. ||| Wind."],
    ),
    "dailydialog": (dailydialog, "dev.tsv.gz", ["Is it late ? __eou__ No .\t2 1\t0 4"]),
    "sigmorphon2021-g2p": (plain(*G2P, text="ab\ta b\n"), "low/ice_dev.tsv.gz", ["ab\ta b"]),
    "conll2018-inflection": (plain(*INFLECTION, text="go\twent\tV;PST\n"), "german_dev.tsv.gz", ["go\twent\tV;PST"]),
    "translit-ar-en": (
        plain("ar2en-train.txt", "ar2en-eval.txt", "ar2en-test.txt", text="سلم\tsalem\n"),
        "dev.tsv",
        ["سلم\tsalem"],
    ),
    "sst2": (
        plain(*(f"stsa.binary.{part}" for part in ("train", "dev", "test")), text="1 a warm film\n"),
        "train.tsv.gz",
        ["1\ta warm film"],
    ),
    "trec": (
        plain("TREC.train", "TREC.test", text="NUM:dist How far is it ?\n"),
        "test.tsv",
        ["NUM\tNUM:dist\tHow far is it ?"],
    ),
    "sick": (
        plain("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt", text="pair_ID\tsentence_A\n"),
        "trial.tsv.gz",
        ["pair_ID\tsentence_A"],
    ),
}
SPLIT_HERE = {"tatoeba-deu-eng": tatoeba, "pydocs-en-fr": pydocs}


def lines_in(path: Path) -> list[str]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return text.decode("utf-8").splitlines()


def test_every_form_is_tried() -> None:
    assert {*UPSTREAM, *SPLIT_HERE} == {*READINGS}
    assert {*READINGS} <= {*SETS}


@pytest.mark.parametrize("name", UPSTREAM)
def test_upstream_files_become_what_the_recipe_reads(name: str, tmp_path: Path) -> None:
    write, file, expected = UPSTREAM[name]
    (tmp_path / "upstream").mkdir()
    write(tmp_path / "upstream")
    made = prepare(name, tmp_path / "upstream", tmp_path / "out", any_count=True)
    assert {*made.lines} == {*SETS[name].files}, "exactly the files that the catalogue names"
    assert lines_in(tmp_path / "out" / file) == expected
    assert made.lines[file] == len(expected)
    first = (tmp_path / "out" / file).read_bytes()
    prepare(name, tmp_path / "upstream", tmp_path / "out", any_count=True)
    assert (tmp_path / "out" / file).read_bytes() == first, "the same bytes every time"
    with pytest.raises(SeqloomError, match=r"lines, .* are expected") as refused:
        prepare(name, tmp_path / "upstream", tmp_path / "other")
    assert refused.value.code == "E_DATA"
    assert not [path for path in (tmp_path / "other").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("made", "base"), [("e2e-nlg-delexicalised", "e2e-nlg"), ("webnlg2017-questions", "webnlg2017")]
)
def test_a_set_is_made_of_another_that_was_laid_out(made: str, base: str, tmp_path: Path) -> None:
    write, file, expected = UPSTREAM[made]
    (tmp_path / "upstream").mkdir()
    write(tmp_path / "upstream")
    prepare(base, tmp_path / "upstream", tmp_path / "base", any_count=True)
    assert not prepare(made, tmp_path / "base", tmp_path / "out", any_count=True).linked
    assert lines_in(tmp_path / "out" / file) == expected
    assert prepare(made, tmp_path / "out", tmp_path / "linked", any_count=True).linked


def test_the_queries_may_come_as_one_table(tmp_path: Path) -> None:
    header = "question_split\tquery_split\tquestion\tsql\tquestion_template\tsql_template\n"
    rows = [f"{part}\tx\twho is {part} ?\tSELECT {part} ;\t-\t-\n" for part in ("dev", "train", "exclude", "test")]
    put(tmp_path / "upstream", **{"advising.tsv": header + "".join(rows)})
    prepare("text2sql-advising", tmp_path / "upstream", tmp_path / "out", any_count=True)
    for part in ("train", "dev", "test"):
        assert lines_in(tmp_path / "out" / f"{part}.tsv.gz") == [f"who is {part} ?\tSELECT {part} ;"]


def test_no_sentence_stands_on_both_sides_of_a_split(tmp_path: Path) -> None:
    (tmp_path / "upstream").mkdir()
    tatoeba(tmp_path / "upstream")
    prepare("tatoeba-deu-eng", tmp_path / "upstream", tmp_path / "out", any_count=True)
    parts = [lines_in(tmp_path / "out" / f"{part}.tsv.gz") for part in ("train", "dev", "test")]
    assert all(parts)
    assert sum(map(len, parts)) == 402
    for side in (0, 1):
        sentences = [{line.split("\t")[side] for line in part} for part in parts]
        assert sum(map(len, sentences)) == len(set.union(*sentences))


def test_documentation_is_split_by_document(tmp_path: Path) -> None:
    (tmp_path / "upstream").mkdir()
    pydocs(tmp_path / "upstream")
    prepare("pydocs-en-fr", tmp_path / "upstream", tmp_path / "out", any_count=True)
    parts = [lines_in(tmp_path / "out" / f"{part}.tsv.gz") for part in ("train", "dev", "test")]
    assert sum(map(len, parts)) == 60
    assert parts[0]
    assert parts[1] + parts[2]
    assert {line.split("\t", 1)[1] for part in parts for line in part} == {
        'Open the file "x".\tOuvre le fichier « x ».'
    }


def test_files_in_the_recipes_form_are_counted_and_linked(tmp_path: Path, seqloom: Command) -> None:
    put(tmp_path / "mine", **{f"{part}.tsv": "a\tb\n" for part in ("train", "dev", "test")})
    refused = seqloom("data", "prepare", "translit-ar-en", tmp_path / "mine", "-o", tmp_path / "out")
    assert "train.tsv has 1 lines, 12,877 are expected (and 2 more files)" in refused.refused("E_DATA", 3)
    assert not (tmp_path / "out").exists()
    taken = seqloom("data", "prepare", "translit-ar-en", tmp_path / "mine", "-o", tmp_path / "out", "--any-count")
    assert taken.code == 0
    assert "linked 3 files" in taken.err
    assert (tmp_path / "out" / "dev.tsv").resolve() == (tmp_path / "mine" / "dev.tsv").resolve()
    again = seqloom(
        "data", "prepare", "translit-ar-en", tmp_path / "mine", "-o", tmp_path / "out", "--any-count", "--json"
    )
    assert json.loads(again.out)["differing"] == ["train.tsv", "dev.tsv", "test.tsv"]


def test_the_list_names_every_set(seqloom: Command) -> None:
    told = json.loads(seqloom("data", "list", "--json").out)
    assert [one["name"] for one in told] == [*SETS]
    assert all(one[key] for one in told for key in ("what", "home", "licence", "citation", "files"))
    text = seqloom("data", "list").out
    assert len(text.splitlines()) == len(SETS)
    one = seqloom("data", "list", "multi30k").out
    assert "GitHub: multi30k/dataset" in one
    assert "cite: Elliott et al. 2016" in one


def test_recipes_that_the_list_names_are_there() -> None:
    named = {recipe for one in SETS.values() for recipe in one.recipes}
    assert {f"{name}.yaml" for name in named} <= {path.name for path in (ROOT / "recipes").glob("*.yaml")}
    for name, one in SETS.items():
        for recipe in one.recipes:
            text = (ROOT / "recipes" / f"{recipe}.yaml").read_text(encoding="utf-8")
            words = (name, one.what.split()[0], *re.findall(r"[A-Z]\w+", one.citation), "features/", "shakespeare/")
            assert any(word in text for word in words), (name, recipe)


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code", "told"),
    [
        (["fetch"], "E_USAGE", 2, "no such action"),
        (["prepare", "multi30k"], "E_USAGE", 2, "needs a NAME and a PATH"),
        (["list", "multi3k"], "E_USAGE", 2, 'did you mean "multi30k"?'),
        (["prepare", "scan", "absent"], "E_FILE", 6, "GitHub: brendenlake/SCAN"),
        (["prepare", "scan", "."], "E_FILE", 6, "no simple_split/tasks_train_simple.txt here"),
        (["prepare", "fsdd", "."], "E_FILE", 6, "train.tar.gz is missing"),
    ],
)
def test_what_cannot_be_done_is_told(
    arguments: list[str],
    code: str,
    exit_code: int,
    told: str,
    tmp_path: Path,
    seqloom: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told in seqloom("data", *arguments).refused(code, exit_code)


def test_markup_that_could_swell_is_refused(tmp_path: Path) -> None:
    webnlg(tmp_path)
    bomb = '<!DOCTYPE a [<!ENTITY b "bbbb">]><benchmark><entry><lex>&b;</lex></entry></benchmark>'
    put(tmp_path, **{"train/one.xml": bomb})
    with pytest.raises(SeqloomError, match="declarations of its own"):
        prepare("webnlg2017", tmp_path, tmp_path / "out", any_count=True)
    (tmp_path / "train" / "one.xml").write_bytes(bomb.encode("utf-16"))  # a parser would read it all the same
    with pytest.raises(SeqloomError, match="not UTF-8 at byte 0"):
        prepare("webnlg2017", tmp_path, tmp_path / "out", any_count=True)
