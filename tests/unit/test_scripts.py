"""Modules become one script for files that stand alone; what would not survive that is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seqloom.probe import scripts


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    given: dict[str, str] = {}
    monkeypatch.setattr(scripts, "static", given.__getitem__)
    scripts.joined.cache_clear()
    yield given
    scripts.joined.cache_clear()


def test_modules_stand_behind_those_that_they_import_and_once(modules: dict[str, str]) -> None:
    modules["a.js"] = "import { b } from './b.js';\nimport { c } from './c.js';\nb(c);\n"
    modules["b.js"] = "import { c } from './c.js';\nexport function b(one) { return one + c; }\n"
    modules["c.js"] = "export const c = 1;\n"
    body = scripts.joined("a.js")
    places = [body.index(part) for part in ("const c = 1", "function b(one)", "b(c);")]
    assert places == sorted(places)
    assert body.count("const c") == 1
    assert "import" not in body
    assert "export" not in body


def test_one_name_for_two_things_is_refused(modules: dict[str, str]) -> None:
    modules["a.js"] = "import { b } from './b.js';\nconst same = 1;\n"
    modules["b.js"] = "const same = 2;\nexport const b = 3;\n"
    with pytest.raises(AssertionError, match="same: one name for two things"):
        scripts.joined("a.js")


@pytest.mark.parametrize("line", ["import * as b from './b.js';", "export { a };", "export default 5;"])
def test_other_forms_of_modules_are_refused(modules: dict[str, str], line: str) -> None:
    modules["a.js"] = f"const a = 1;\n{line}\n"
    with pytest.raises(AssertionError):
        scripts.joined("a.js")


@pytest.mark.parametrize("entry", ["page.js", "report.js"])
def test_our_own_can_be_joined(entry: str) -> None:
    assert "class View" in scripts.joined(entry)
