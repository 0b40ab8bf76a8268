"""Lead baselines of summaries, on a set of three mails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import lead  # type: ignore[import-not-found]

MAIL = "Dr. Holm, the rope came today. It is too thin."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.tsv").write_text(f"body\tsubject\n{MAIL}\trope\nHello.\tthe rope came\n")
    (tmp_path / "test.tsv").write_text(
        f"body\tsubject\tann0\tann1\tann2\n{MAIL}\tthe rope came\tDr. Holm\t\tthin\n{MAIL}\t\trope\t\t\n"
    )
    return tmp_path


def test_the_three_ways() -> None:
    assert lead.first_words(MAIL, 3) == "Dr. Holm, the"
    assert lead.first_sentence(MAIL, 3) == "Dr. Holm, the rope came today."
    assert lead.cut_sentence(MAIL, 3) == "Dr. Holm, the"
    assert lead.cut_sentence("Yes. And more of it.", 3) == "Yes."
    assert [way("", 3) for way in lead.WAYS.values()] == ["", "", ""]


def test_lengths_are_of_training_and_scores_of_test(folder: Path) -> None:
    """Subjects of 1 and 3 words: 2 words. The first sentence has 6: 3 of them are the subject's, F = 6 / 9."""
    pytest.importorskip("nltk")
    found = lead.measured("aeslc", folder)
    assert found["mean_words"] == 2
    assert found["sentences"] == 1, "a mail without a subject cannot be judged"
    ways = found["ways"]
    assert ways["first words"]["scores"]["rouge_1"]["value"] == 0
    assert ways["first words"]["all_references"]["rouge_1"]["value"] == pytest.approx(100)
    assert ways["first sentence"]["scores"]["rouge_l"]["value"] == pytest.approx(100 * 6 / 9)
    assert found["chosen"]["way"] == "first sentence"
    assert found["scores"] == ways["first sentence"]["scores"]
    assert ways["first sentence"]["all_references"]["rouge_l"]["signature"].startswith("nrefs:3|")


def test_summaries_of_papers_stand_in_one_column(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("paper_id\ttitle\tabstract\ttldrs\np\tMills\tMills turn.\tWater. ||| Wind.\n")
    (one,) = lead.documents(lead.KINDS["scitldr"], tmp_path, "dev")
    assert one == lead.Document("Mills turn.", ("Water.", "Wind."))
