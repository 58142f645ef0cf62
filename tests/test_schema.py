"""cases.schema.json: every word of the golden files is as it says, and what is not is found."""

import json
from pathlib import Path

import jsonschema
import pytest
from recipes.wholes import in_full_set

from peref.encodings import names
from peref.golden.spec.entries import golden_schema
from peref.schema import misfit

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
SCHEMA = jsonschema.Draft202012Validator(json.loads((GOLDEN / "cases.schema.json").read_text()))
FILES = [path.relative_to(GOLDEN).as_posix() for path in sorted(GOLDEN.glob("*/*/cases.json"))]


def read(path):
    return json.loads((GOLDEN / path).read_text())


def test_the_schema_is_one():
    SCHEMA.check_schema(SCHEMA.schema)
    written = {f"core/{name}/cases.json" for name in names()}
    assert set(FILES) == written | {f"full/{name}/cases.json" for name in in_full_set()}


@pytest.mark.parametrize("path", FILES)
def test_a_file_is_as_it_says(path):
    SCHEMA.validate(read(path))


SPOILT = {  # what is done to the words of an encoding
    "a flag without a remedy": lambda x: x["flags"]["basic"].pop("fix"),
    "a digest cut short": lambda x: x["cases"][0].update(digest="ab"),
    "a field too many": lambda x: x.update(more=1),
    "a hook that is none": lambda x: x.update(hook="turn"),
    "a near miss without its probes": lambda x: next(c for c in x["cases"] if c["near_miss"])["near_miss"][
        0
    ].pop("probes"),
    "a reason without an end": lambda x: x["cases"][0].update(why="because"),
    "an id with blanks": lambda x: x["cases"][0].update(id="rope op"),
    "a level that is none": lambda x: x["cases"][0].update(level="deep"),
    "a fact of another kind": lambda x: x["cases"][0]["facts"].update(causal="yes"),
    "one reading alone": lambda x: x["cases"][0].update(acceptable={"norm": "a", "variants": {"a": "b"}}),
    "a kind of refusal that is none": lambda x: x["refusals"][0].update(kind="bad"),
    "a refusal without inputs": lambda x: x["refusals"][0].pop("inputs"),
    "a law that is none": lambda x: x["laws"][0].update(law="gravity"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_not_as_it_says_is_found(what):
    words = read("core/yarn/cases.json")
    SCHEMA.validate(words)
    SPOILT[what](words)
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate(words)


@pytest.mark.parametrize("what", SPOILT)
def test_the_checker_of_the_package_finds_it_too(what):
    schema = golden_schema("cases.schema.json")
    words = read("core/yarn/cases.json")
    assert misfit(words, schema) == ""
    SPOILT[what](words)
    assert misfit(words, schema)


def test_a_key_too_many_is_named():
    words = misfit({"a": 1, "more": 2}, {"properties": {"a": {}}, "additionalProperties": False})
    assert words == 'it has an unknown key, "more"'


def test_a_keyword_that_nobody_knows_is_no_silent_pass():
    with pytest.raises(ValueError, match="maxItems"):
        misfit([1], {"type": "array", "maxItems": 0})
