"""Lines to predict from: plain, in columns, as JSON; lines in are lines out."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqloom.data.inputs import InputForm, read_inputs
from seqloom.errors import SeqloomError


def found(tmp_path: Path, text: str, **form: object) -> list[object]:
    path = tmp_path / "lines"
    path.write_text(text)
    return list(read_inputs(str(path), InputForm(**form)))  # type: ignore[arg-type]


def test_without_extras_a_line_is_a_source_tabs_and_all(tmp_path: Path) -> None:
    assert found(tmp_path, "a\tb\n\nc\n") == ["a\tb", "", "c"]


def test_columns_are_the_source_then_the_extras_in_their_order(tmp_path: Path) -> None:
    inputs = found(tmp_path, "go\tV;PST\t<en>\n\nis\t\t<en>\n", extras=["tags", "lang"])
    assert inputs == [
        {"source": "go", "tags": "V;PST", "lang": "<en>"},
        {"source": "", "tags": "", "lang": ""},
        {"source": "is", "tags": "", "lang": "<en>"},
    ]


def test_what_is_the_same_for_all_needs_no_column(tmp_path: Path) -> None:
    extras = ["tags", "lang"]
    assert found(tmp_path, "go\tV\n", extras=extras, constants={"lang": "x"}) == [
        {"source": "go", "tags": "V", "lang": "x"}
    ]
    both = {"tags": "V", "lang": "x"}
    assert found(tmp_path, "a\tb\n", extras=extras, constants=both) == [{"source": "a\tb", **both}], "a tab is text"


def test_json_objects_may_hold_lists_and_records(tmp_path: Path) -> None:
    lines = '{"source": "go", "tags": ["V", "PST"], "id": 7}\n\n{"tags": {"n": 1}, "source": "a"}\n'
    assert found(tmp_path, lines, extras=["tags"], json_lines=True) == [
        {"source": "go", "tags": "V;PST"},
        {"source": "", "tags": ""},
        {"source": "a", "tags": "n=1"},
    ]


@pytest.mark.parametrize(
    ("line", "form", "said"),
    [
        ("go", {"extras": ["tags"]}, "1 column(s), but 2 are expected: source, tags"),
        ("go\tV\tx", {"extras": ["tags"]}, "3 column(s), but 2 are expected"),
        ("{", {"json_lines": True}, "not valid JSON"),
        ("[1]", {"json_lines": True}, "a JSON object is expected"),
        ('{"source": "go"}', {"extras": ["tags"], "json_lines": True}, "no key 'tags'"),
        ('{"source": null}', {"json_lines": True}, "'source' must be"),
    ],
)
def test_a_line_of_another_form_is_named(line: str, form: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(SeqloomError) as caught:
        found(tmp_path, "\n" + line + "\n", **form)
    assert said in caught.value.what
    assert caught.value.where == f"{tmp_path / 'lines'}:2"
    assert caught.value.code == "E_DATA"
