"""manifest.schema.json: every word of the golden files is as it says, and what is not is found."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
SCHEMA = json.loads((GOLDEN / "manifest.schema.json").read_text())
FILES = {"manifest.json": None, "negative.json": "negative", "laws.json": "laws"}
FILES |= {path.relative_to(GOLDEN).as_posix(): "cases" for path in sorted(GOLDEN.glob("**/groups/*/cases.json"))}
FILES |= {path.relative_to(GOLDEN).as_posix(): None for path in sorted(GOLDEN.glob("full/manifest.json"))}


def validator(part):
    """For the manifest, or for one of the other files, which are under $defs."""
    schema = SCHEMA if part is None else {"$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{part}"}
    return jsonschema.Draft202012Validator(schema)


def read(path):
    return json.loads((GOLDEN / path).read_text())


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert len([part for part in FILES.values() if part == "cases"]) >= 12


@pytest.mark.parametrize("path", FILES)
def test_a_file_is_as_it_says(path):
    validator(FILES[path]).validate(read(path))


SPOILT = {  # file -> what is done to it
    "a flag without a remedy": ("manifest.json", lambda x: x["flags"]["basic"].pop("fix")),
    "a digest cut short": ("manifest.json", lambda x: x["groups"][0]["files"].update({"cases.json": "ab"})),
    "a field too many": ("manifest.json", lambda x: x.update(more=1)),
    "a version that is none": ("manifest.json", lambda x: x.update(spec="one")),
    "a reason without an end": ("groups/rotate_op/cases.json", lambda x: x["cases"][0].update(why="because")),
    "an id with blanks": ("groups/rotate_op/cases.json", lambda x: x["cases"][0].update(id="rope op")),
    "a level that is none": ("groups/rotate_op/cases.json", lambda x: x["cases"][0].update(level="deep")),
    "a fact of another kind": ("groups/rotate_op/cases.json", lambda x: x["cases"][0]["facts"].update(causal="yes")),
    "one reading alone": ("groups/rotate_table/cases.json", lambda x: x["cases"][0].update(acceptable={"norm": "a", "variants": {"a": "b"}})),
    "a kind of refusal that is none": ("negative.json", lambda x: x["cases"][0].update(kind="bad")),
    "a refusal without inputs": ("negative.json", lambda x: x["cases"][0].pop("inputs")),
    "a law that is none": ("laws.json", lambda x: x["cases"][0].update(law="gravity")),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_not_as_it_says_is_found(what):
    path, change = SPOILT[what]
    words = copy.deepcopy(read(path))
    change(words)
    with pytest.raises(jsonschema.ValidationError):
        validator(FILES[path]).validate(words)
