"""Settings, tables and YAML: how a recipe line becomes a typed object.

`Settings` are frozen pydantic models that refuse unknown keys. A `Table` maps the word after `kind:` to a class;
the class's own nested `Settings` validates the rest. YAML is read under limits of size, depth and aliases, and this
file never imports torch, so that a hostile recipe is refused before anything heavy is loaded. How a refusal is worded
is `wording.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoints, distributions
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from seqloom import wording
from seqloom.errors import SeqloomError, nearest

T = TypeVar("T")

MAX_YAML_BYTES = 1_000_000
MAX_YAML_DEPTH = 30
MAX_YAML_NODES = 50_000
MOST = 10**9  # of any number that says no bound of its own: torch counts in 64 bits and computes in float32

Plain = None | bool | int | float | str | Sequence["Plain"] | Mapping[str, "Plain"]


_OPENED = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # pipes that have their writer: `config <(sed ... recipe.yaml)`
_FOLLOWS = "default_factory_not_called"  # a default that depends on a key which is itself wrong: no problem of its own


def _bound(schema: object) -> None:
    """Bound the numbers of a pydantic schema that no field bounds, and word the refusal of each union as a whole."""
    if isinstance(schema, list | tuple):
        for part in schema:
            _bound(part)
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if kind in ("int", "float"):
        if "le" not in schema and "lt" not in schema:
            schema["le"] = MOST
        if "ge" not in schema and "gt" not in schema:
            schema["ge"] = -MOST
        if kind == "float" and schema.get("gt") == 0:
            schema["ge"] = wording.SMALLEST
    if kind == "union":
        forms = " or ".join(map(_form, schema["choices"]))
        schema |= {"custom_error_type": wording.NO_CHOICE, "custom_error_message": f"expected {forms}"}
    for key, part in schema.items():
        if key not in ("metadata", "serialization", "default", "cls"):
            _bound(part)


def _form(schema: Mapping[str, Any]) -> str:
    """What one choice of a union takes, in words."""
    words = {"str": "text", "int": "an integer", "float": "a number", "bool": "true or false"}
    words |= {"tuple": "a list", "list": "a list"}
    some = " that is not empty" if schema.get("min_length") else ""
    return words.get(schema["type"], "a mapping of keys") + some


class Settings(BaseModel):
    """What a person may choose. Frozen; an unknown key is an error that names the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Every number of every settings class has bounds, said or not; see `_bound`."""
        schema = handler(source)
        _bound(schema)
        return schema

    @model_validator(mode="wrap")
    @classmethod
    def _judge(cls, raw: object, known: ModelWrapValidatorHandler[Self]) -> Self:
        """Name unknown keys with their nearest, and go on to judge the rest: all problems at once."""
        if not isinstance(raw, Mapping):
            return known(raw)
        problems = [
            _line((), f"unknown key {key!r}{nearest(str(key), cls.model_fields)}; known: {', '.join(cls.model_fields)}")
            for key in raw
            if key not in cls.model_fields
        ]
        try:
            made = known({key: cls._completed(key, value) for key, value in raw.items() if key in cls.model_fields})
        except ValidationError as error:
            found = (item for item in error.errors(include_url=False) if item["type"] != _FOLLOWS)
            problems += [_line(item["loc"], wording.problem(item)) for item in found]
        if problems:
            raise ValidationError.from_exception_data(cls.__qualname__, problems)
        return made

    @classmethod
    def _completed(cls, key: str, value: object) -> object:
        """A mapping that leaves keys out keeps those of the field's default: `attention: {heads: 2}` changes one."""
        default = cls.model_fields[key].get_default(call_default_factory=True, validated_data={})
        return _merged(default, value) if isinstance(default, Settings) and isinstance(value, Mapping) else value

    def with_(self, **changes: object) -> Self:
        """A copy with some keys changed, validated again."""
        return type(self).model_validate({**dict(iter(self)), **changes})


S = TypeVar("S", bound=Settings)


def _merged(default: Settings, given: Mapping[str, object]) -> dict[str, object]:
    """`given` over `default`, key by key and level by level; another kind has nothing to keep.

    Only what the default says itself is kept: what it leaves to its class may depend on what is given.
    """
    kept = {key: value for key, value in default if key in default.model_fields_set or key == "kind"}
    if given.get("kind", kept.get("kind")) != kept.get("kind"):
        return dict(given)
    for key, value in given.items():
        inner = kept.get(key)
        kept[key] = _merged(inner, value) if isinstance(inner, Settings) and isinstance(value, Mapping) else value
    return kept


@cache
def _installed() -> EntryPoints:
    """What other packages offer: all of them are asked once, which takes a while, and not for each table."""
    return EntryPoints(point for package in distributions() for point in package.entry_points)


class Table(Generic[T]):
    """A literal table `kind -> class`; third parties add rows by the entry point group `seqloom.<name>`.

    Each class carries a nested `Settings` whose `kind` is a `Literal` of its row's word.
    """

    def __init__(self, name: str, rows: Mapping[str, type[T]]) -> None:
        self.name = name
        self._rows = dict(rows)
        self._extended = False

    def _extend(self) -> None:
        if not self._extended:
            self._extended = True
            for point in _installed().select(group=f"seqloom.{self.name}"):
                self._rows.setdefault(point.name, point.load())

    def __iter__(self) -> Iterator[str]:
        self._extend()
        return iter(self._rows)

    def __len__(self) -> int:
        self._extend()
        return len(self._rows)

    def __getitem__(self, kind: str) -> type[T]:
        self._extend()
        if kind not in self._rows:
            raise ValueError(
                f"unknown kind {kind!r}{nearest(str(kind), self._rows)}; {self.name} are: {', '.join(self._rows)}"
            )
        return self._rows[kind]

    def settings_class(self, kind: str) -> type[Settings]:
        found: type[Settings] = self[kind].Settings  # type: ignore[attr-defined]
        return found

    def settings(self, raw: object) -> Settings:
        """Validate `{kind: ..., ...}`, or the bare word `kind`, into the class's own settings."""
        if isinstance(raw, Settings):
            return raw
        if isinstance(raw, str):
            raw = {"kind": raw}
        if not isinstance(raw, Mapping) or "kind" not in raw:
            raise ValueError(f"expected one of the {self.name} ({', '.join(self)}), or a mapping with a key 'kind'")
        return self.settings_class(str(raw["kind"])).model_validate(dict(raw))

    def build(self, settings: Settings, **sizes: Any) -> T:
        """Construct the class that `settings.kind` names. Sizes known only at run time come as keywords."""
        return self[kind_of(settings)](settings, **sizes)  # type: ignore[call-arg]


def kind_of(settings: Settings) -> str:
    kind: str = settings.kind  # type: ignore[attr-defined]
    return kind


class Kind:
    """Field annotation: `score: Annotated[Settings, Kind(SCORES)]` accepts what `SCORES.settings` accepts."""

    def __init__(self, table: Table[Any]) -> None:
        self.table = table

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        optional = type(None) in get_args(source)

        def validate(raw: object) -> Settings | None:
            return None if optional and raw is None else self.table.settings(raw)

        def plain(value: Settings | None) -> object:
            return None if value is None else value.model_dump(mode="json")

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(plain)
        )


# --- reading -----------------------------------------------------------------------------------------------------


class _BoundedLoader(yaml.SafeLoader):
    """SafeLoader that counts: depth, nodes and aliases are limited while composing, before anything is built."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed in a recipe")
        self._depth += 1
        self._nodes += 1
        if self._depth > MAX_YAML_DEPTH:
            raise yaml.YAMLError(f"nested deeper than {MAX_YAML_DEPTH} levels")
        if self._nodes > MAX_YAML_NODES:
            raise yaml.YAMLError(f"more than {MAX_YAML_NODES:,} entries")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.YAMLError(f"key {key.value!r} stands twice (line {key.start_mark.line + 1})")
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


# `1e-3` is a number to everyone but YAML 1.1; `yes`, `no`, `on`, `off` are words (language codes: `no` is Norwegian),
# and so are dates.
_BOOL, _FLOAT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"
_NUMBER = re.compile(
    r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
)
_NUMBER_STARTS = list("-+0123456789.")
_BoundedLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOL, _FLOAT, "tag:yaml.org,2002:timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_BoundedLoader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_BoundedLoader.add_implicit_resolver(_FLOAT, _NUMBER, _NUMBER_STARTS)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that also quotes the words which only the loader above takes for numbers: the text "1e-3"."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Line breaks that only Unicode knows are escaped: written as they are, they would be read back as blanks."""
    style = '"' if re.search("[\x85\u2028\u2029]", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_implicit_resolver(_FLOAT, _NUMBER, _NUMBER_STARTS)
_Dumper.add_representer(str, _quoted)


def parse_yaml(text: str, where: str) -> object:
    """Plain data from YAML text, or E_RECIPE with the line. Nothing is evaluated, nothing is imported."""
    if len(text) > MAX_YAML_BYTES:
        raise SeqloomError("E_RECIPE", f"{len(text):,} characters of YAML, at most {MAX_YAML_BYTES:,}", where=where)
    loader = None
    try:
        loader = _BoundedLoader(text)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SeqloomError("E_RECIPE", f"not valid YAML: {error.problem}", where=f"{where}:{line}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise SeqloomError(
            "E_RECIPE", f"YAML refused: {error}", where=where, fix="write the recipe out plainly"
        ) from None
    except ValueError:  # Python reads no integer of more than 4,300 digits
        raise SeqloomError("E_RECIPE", "YAML refused: a number of too many digits", where=where) from None
    finally:
        if loader is not None:
            loader.dispose()


def read_yaml(path: Path) -> dict[str, object]:
    """A mapping from a YAML file, limits checked before the file is read whole."""
    try:
        if path.is_fifo() and not str(path).startswith(_OPENED):
            what = "a pipe is no recipe: it may wait for its writer for ever"
            raise SeqloomError("E_FILE", what, where=str(path), fix="give a file, or - and the recipe on stdin")
        with path.open("rb") as file:
            data = file.read(MAX_YAML_BYTES + 1)  # what a file says of its size need not be true (/dev/zero)
        if len(data) > MAX_YAML_BYTES:
            raise SeqloomError("E_RECIPE", f"more than {MAX_YAML_BYTES:,} bytes of YAML", where=str(path))
        if data.startswith(b"\x1f\x8b"):
            raise SeqloomError("E_RECIPE", "a gzip file; a recipe is plain text", where=str(path), fix="unpack it")
        text = data.decode("utf-8")
    except OSError as error:
        raise SeqloomError("E_FILE", f"cannot read the recipe: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise SeqloomError("E_RECIPE", f"not UTF-8 at byte {error.start}", where=str(path)) from None
    raw = parse_yaml(text, str(path))
    if not isinstance(raw, dict):
        raise SeqloomError("E_RECIPE", "a recipe is a mapping of keys", where=str(path), fix="see 'seqloom init'")
    return raw


def override(raw: Mapping[str, object], assignments: Sequence[str]) -> dict[str, object]:
    """Apply `--set a.b.c=value`. Values are YAML; a new `kind` drops the keys of the old one."""
    tree: dict[str, object] = dict(raw)
    for assignment in assignments:
        path, separator, value = assignment.partition("=")
        if not separator or not path.strip():
            raise SeqloomError("E_USAGE", f"--set {assignment!r} is not of the form key.key=value")
        keys = path.strip().split(".")
        _assign(tree, keys, parse_yaml(value, f"--set {path}"))
    return tree


def _assign(tree: dict[str, object], keys: Sequence[str], value: object) -> None:
    for key in keys[:-1]:
        child = tree.get(key)
        if isinstance(child, str):  # the bare word `score: dot` is short for `score: {kind: dot}`
            child = {"kind": child}
        tree[key] = child = dict(child) if isinstance(child, Mapping) else {}
        tree = child
    last = keys[-1]
    if last == "kind" and tree.get("kind") not in (None, value):
        tree.clear()
    tree[last] = value


# --- judging -----------------------------------------------------------------------------------------------------


def validated(cls: type[S], raw: object, where: str) -> S:
    """`cls` from plain data, or one E_RECIPE that lists every problem with its path."""
    try:
        return cls.model_validate(raw)
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems = [f"{wording.path(item['loc'])}{wording.problem(item)}" for item in found]
        count = f"{len(problems)} problems: " if len(problems) > 1 else ""
        raise SeqloomError(
            "E_RECIPE", count + "; ".join(problems), where=where, fix="'seqloom config' shows every key"
        ) from None


def _line(loc: tuple[int | str, ...], message: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("seqloom", message), loc=loc, input=None)


def render_yaml(settings: Settings) -> str:
    """The effective recipe as YAML, every default written out."""
    text: str = yaml.dump(
        settings.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120
    )
    return text
