"""A case rebuilt from its words in cases.json."""

from typing import Any

from peref.golden.cases import Case


def rebuilt(words: dict[str, Any], inputs: dict[str, Any]) -> Case:
    """The case that these words of cases.json describe."""
    seg = nested(inputs["seg"].tolist()) if "seg" in inputs else None
    given = {name: nested(x) for name, x in words["options"].items()}
    slug, positions = words["id"].partition("/")[2], nested(inputs["positions"].tolist())
    return Case(
        words["encoding"], words["level"], slug, words["why"], (), given, positions, seg, **words["facts"]
    )


def nested(x: Any) -> Any:
    """Lists, also in lists, as tuples."""
    return tuple(map(nested, x)) if isinstance(x, list) else x
