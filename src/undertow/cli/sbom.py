"""`undertow sbom`: which packages undertow rests on here, with versions and licences."""

from __future__ import annotations

import json
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from undertow._version import __version__

OWN = "undertow"


def sbom(*, out: Path | None = None) -> None:
    """List the packages that undertow rests on here, with versions and licences, as CycloneDX JSON.

    Args:
        out: The file; the screen when not given.
    """
    from undertow.files import write_text

    text = json.dumps(bill(), indent=2) + "\n"
    if out is None:
        print(text, end="")  # noqa: T201
    else:
        write_text(out, text)


def bill() -> dict[str, Any]:
    """The list: undertow, then everything that is installed of what it needs, and of what that needs."""
    found = _installed(OWN)
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": {"type": "application", "name": OWN, "version": __version__}},
        "components": [_component(own) for name, own in sorted(found.items()) if name != OWN],
        "dependencies": [
            {"ref": _ref(own), "dependsOn": sorted(_ref(found[name]) for name in _needs(own) if name in found)}
            for _, own in sorted(found.items())
        ],
    }  # fmt: skip


def _installed(root: str) -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # of another system, or optional and not here
            continue
        waiting += _needs(found[name])
    return found


def _needs(own: Distribution) -> list[str]:
    """The names that a package asks for, optional ones included: what is here is listed."""
    texts = (text.split(";")[0] for text in own.requires or ())
    names = (
        "".join(letter if letter.isalnum() or letter in "-_." else " " for letter in text) for text in texts
    )
    return [_plain(name.split()[0]) for name in names if name.strip()]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _ref(own: Distribution) -> str:
    return f"pkg:pypi/{_plain(own.metadata['Name'])}@{own.version}"


def _component(own: Distribution) -> dict[str, Any]:
    licence = _licence(own)
    return {
        "type": "library", "name": own.metadata["Name"], "version": own.version, "bom-ref": _ref(own),
        "purl": _ref(own),
        "licenses": [{"license": {"name": licence}}] if licence else [],
    }  # fmt: skip


def _licence(own: Distribution) -> str:
    """The licence as the package names it: an expression, its classifiers, or the first line of the field."""
    about: Any = own.metadata
    told = about.get("License-Expression")
    if told:
        return str(told)
    kinds = [text.rsplit(" :: ", 1)[-1] for text in about.get_all("Classifier") or () if "License ::" in text]
    field = str(about.get("License") or "").strip().splitlines()
    return " and ".join(kinds) or (field[0][:80] if field else "")
