"""A study's folder: study.json, and the hashes that it has of the files beside it.

facts = read_study_facts(folder)             # checked; a file beside it that changed is a ChangedFile
read_claims(folder)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from undertow.errors import BadFile, ChangedFile, NotThere
from undertow.stored.documents import ClaimPart, StudyDocument
from undertow.stored.door import MOST_JSON, decode, read_bytes, read_document
from undertow.stored.seals import file_hash

FACTS, CLAIMS = "study.json", "claims.json"
AGAIN = "Run the study again."
ANEW = "Delete that file and run the study again."
"""Where the run would refuse to write over what cannot be read: it may be another undertow's."""


def read_study_facts(folder: Path) -> dict[str, Any]:
    """study.json, if it and all files that it knows are as they were written."""
    facts = read_document(folder / FACTS, StudyDocument, next_step=ANEW)
    for name, told in facts.get("files", {}).items():
        path = folder / Path(name).name
        if not path.exists():
            raise NotThere(f"There is no file {path}, which {FACTS} names. {AGAIN}")
        if file_hash(path) != told:
            raise ChangedFile(path)
    return facts


def read_claims(folder: Path) -> list[dict[str, Any]]:
    """The claims of a study and what became of them."""
    path = folder / CLAIMS
    stored = decode(read_bytes(path, MOST_JSON), str(path), AGAIN)
    try:
        msgspec.convert(stored, list[ClaimPart])
    except msgspec.ValidationError as error:
        raise BadFile(path, "", str(error).replace("`", ""), AGAIN) from None
    return stored
