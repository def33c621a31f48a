"""The schema of each JSON document that undertow writes; `read_document` holds files to them.

Run, audit, study, claims, a saved repair, a watched training, the mark of a store, the words of a failed task.
Unknown fields are refused: who adds a field adds it here.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

LARGE = 2**53
"""Whole numbers above this are not the same in all readers of JSON."""

Whole = Annotated[int, Meta(ge=0, le=LARGE)]
Size = Annotated[int, Meta(ge=1, le=2**31)]
Seed = Annotated[int, Meta(ge=0, le=2**62)]
Name = Annotated[str, Meta(max_length=10_000)]
Text = Annotated[str, Meta(max_length=1_000_000)]
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{8,128}$")]
RunId = Annotated[str, Meta(pattern="^([0-9a-f]{8,64})?$")]
Scalar = bool | Annotated[int, Meta(ge=-LARGE, le=LARGE)] | float | Name | None
Classes = Annotated[list[Name], Meta(max_length=1_000_000)]
Numbers = dict[Name, Any]


class Document(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A file of its own; `newest` is the latest format that this undertow reads."""

    newest: ClassVar[int] = 1
    owner: ClassVar[str] = ""
    """The field with the mark of the run that it belongs to."""


class Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A part of a document."""


class ModelPart(Part):
    """Enough to build the untrained model."""

    spec: Name
    shape: Annotated[list[Size], Meta(min_length=1, max_length=8)]
    outputs: Size
    vocabulary: Size | None = None
    seed: Seed = 0


class LabelsPart(Part):
    """The file that the labels came from."""

    file: Name
    content: Hash


class DataPart(Part):
    """What a run was trained on."""

    name: Name
    fingerprint: Hash | None = None
    classes: Classes = []
    train: Whole = 0
    test: Whole = 0
    scaling: Name | None = None
    note: Text = ""
    labels: LabelsPart | None = None


class RunDocument(Document):
    """run.json."""

    format: Whole = 1
    undertow: Name = ""
    made: Name = ""
    id: RunId = ""
    config: dict[Name, Any] | None = None  # held to by TrainConfig
    model: ModelPart | None = None
    data: DataPart | None = None
    interventions: list[Name] = []
    versions: dict[Name, Name] = {}
    machine: Name = ""
    finished: Name | None = None
    ended: Name = ""


class FindingPart(Part):
    """A sentence of the verdict."""

    topic: Name
    sentence: Text
    answer: Name
    numbers: dict[Name, Scalar | list[Scalar]] = {}
    short: Name = ""
    meaning: Literal["good", "bad", "unknown"] = "unknown"
    rule: Text = ""


class AuditedData(Part):
    """The samples that were audited."""

    name: Name | None = None
    classes: Classes = []
    train: Whole | None = None
    test: Whole | None = None
    samples: Whole | None = None


class LookedAt(Part):
    """What of a run was audited."""

    checkpoints: Size
    samples: Size
    of_checkpoints: Size
    of_samples: Size
    seconds: Annotated[float, Meta(ge=0)]


class AuditDocument(Document):
    """audit.json, of an audit or of a search for wrong labels without a run."""

    owner: ClassVar[str] = "run_id"
    format: Whole = 1
    undertow: Name = ""
    made: Name = ""
    run: Name = ""
    run_id: RunId = ""
    unit: Literal["epoch", "step", "model"] = "epoch"
    situation: Name = ""
    headline: Text = ""
    verdict: list[FindingPart] = []
    measures: dict[Name, float | None] = {}
    quick: bool = False
    part: LookedAt | None = None  # where that was not all
    settings: dict[Name, Scalar | list[Scalar] | dict[Name, Scalar]] = {}
    data: AuditedData | None = None
    sections: list[Name] | None = None
    notes: list[Text] = []  # on labels that were searched without a run
    table: Hash | None = None  # the seal of audit.parquet


class StudyDocument(Document):
    """study.json."""

    format: Whole
    study: Name
    scale: Literal["smoke", "laptop", "paper"]
    undertow: Name = ""
    title: Text = ""
    source: Text = ""
    notes: list[Text] = []
    machine: dict[Name, Scalar] = {}
    seeds: Annotated[int, Meta(ge=1, le=LARGE)] = 1
    first_seed: Whole = 0
    unfinished: Whole = 0
    task_seconds: Annotated[float, Meta(ge=0)] = 0.0
    wall_seconds: Annotated[float, Meta(ge=0)] = 0.0
    changes: list[Text] = []
    rows: Name = ""
    recipe: Name = ""
    failures: list[Text] = []
    files: dict[Name, Hash] = {}  # the hashes of the files beside it


class ClaimPart(Part):
    """One claim of a paper, and what the rows say of it."""

    claim: Text
    verdict: Literal["holds", "does not hold", "cannot tell"]
    numbers: Text = ""
    agree: Whole | None = None
    of: Whole | None = None
    p: Annotated[float, Meta(ge=0, le=1.000001)] | None = None
    place: Text | None = None
    ours: Scalar = None
    cause: Text | None = None


class LinearHeadPart(Part, tag_field="kind", tag="linear"):
    """The linear head of a graft."""

    dim: Size
    classes: Size
    bias: bool


class SubspaceHeadPart(Part, tag_field="kind", tag="subspace"):
    """The head of a graft that compares with a subspace for each class."""

    dim: Size
    sizes: Annotated[list[Whole], Meta(min_length=1, max_length=1_000_000)]


class RepairDocument(Document, forbid_unknown_fields=False):
    """The JSON beside a saved repair; who saves one may say more of it."""

    format: Whole
    tensors: Hash
    kind: Literal["model", "graft"]
    undertow: Name = ""
    of: Name = ""
    model: ModelPart | None = None
    layer: Name | None = None
    entering: bool | None = None
    conv: Name | None = None
    tokens: Name | None = None
    head: LinearHeadPart | SubspaceHeadPart | None = None
    left_out: list[Name] = []


class WatchDocument(Document):
    """watch.json: what was seen of a training so far."""

    format: Whole
    unit: Literal["epoch", "step"]
    looks: list[dict[Name, Any]] = []  # held to by Look
    memorised_at: Whole | None = None


class StoreDocument(Document):
    """store.json: the mark of a place of results."""

    format: Whole
    undertow: Name = ""


class FailureDocument(Document):
    """Why a task failed."""

    error: Text
    task: dict[Name, Any] = {}
