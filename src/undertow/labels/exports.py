"""What was found of the labels, in the forms that other programs read; none of them is needed for it.

    Exports(to_cleanlab=Path("issues.csv"), to_labelstudio=Path("tasks.json")).write(found, shown)
    named_table(found)                       # the table with names of classes, texts and files where they are known

Cleanlab: its column names beside ours, one row per sample. Label Studio: flagged and unlabelled samples in the order
in which to review them, with proposals as predictions, and the labelling interface beside them as .xml. Picture files
are served by its local storage with the picture folder as its root; pictures without files lie in the tasks.
FiftyOne: one JSON object per sample for `fiftyone.Sample.from_dict`, which wants picture files; without them the values
are for `dataset.set_values`. Hugging Face: columns in the order of the data set's rows, for
`concatenate_datasets([data, columns], axis=1)`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

from undertow.errors import BadValue
from undertow.files import aside, write_text
from undertow.labels.given_files import Shown
from undertow.labels.thumbnails import thumbnails
from undertow.outputs import Named, check_outputs
from undertow.pictures import png_address
from undertow.spreadsheets import write_csv
from undertow.stored.tables import write_table as write_sealed

if TYPE_CHECKING:
    from undertow.labels.findings import LabelErrors

Frame = Any
"""A pandas table."""

ENDINGS = {
    "to_cleanlab": (".csv", ".parquet"), "to_labelstudio": (".json",), "to_fiftyone": (".jsonl",),
    "to_huggingface": (".parquet",),
}  # fmt: skip
NOTHING = Shown()
CONTROL, OBJECT = "label", "sample"
"""What Label Studio calls the choice and the sample in the interface that we write."""
LOCAL_FILES = "/data/local-files/?d="
WIDEST_TASK = 512
"""Pixels of a side of a picture that lies in its task."""


@dataclass(frozen=True, kw_only=True)
class Exports:
    """Files for other programs."""

    to_cleanlab: Path | None = None
    """Write cleanlab's columns beside ours to this .csv or .parquet file."""
    to_labelstudio: Path | None = None
    """Write the labels to review as Label Studio tasks to this .json file; the interface goes beside it as .xml."""
    to_fiftyone: Path | None = None
    """Write FiftyOne's fields, one sample per line, to this .jsonl file; FiftyOne wants --images FOLDER beside it."""
    to_huggingface: Path | None = None
    """Write columns for a Hugging Face data set, in the order of its rows, to this .parquet file."""

    def __post_init__(self) -> None:
        for name, endings in ENDINGS.items():
            path: Path | None = getattr(self, name)
            if path is not None and path.suffix not in endings:
                flag = name.replace("_", "-")
                raise BadValue(f"labels --{flag}", f"a {' or '.join(endings)} file", str(path))

    @property
    def any(self) -> bool:
        """Whether something is to be written."""
        return any(getattr(self, own.name) is not None for own in fields(self))

    @property
    def named(self) -> list[Named]:
        """The files that will be written, by the flags that ask for them."""
        files: list[Named] = [(f"--{name.replace('_', '-')}", getattr(self, name)) for name in ENDINGS]
        interface = None if self.to_labelstudio is None else self.to_labelstudio.with_suffix(".xml")
        return [*files, ("--to-labelstudio", interface)]

    def write(self, found: "LabelErrors", shown: Shown = NOTHING) -> list[Path]:
        """Write what was asked for; the files written."""
        check_outputs("labels", self.named)
        written: list[Path] = []
        if self.to_cleanlab is not None:
            written += [save_table(cleanlab_table(found, shown), self.to_cleanlab)]
        if self.to_labelstudio is not None:
            written += _write_labelstudio(found, shown, self.to_labelstudio)
        if self.to_fiftyone is not None:
            lines = (json.dumps(one, ensure_ascii=False) for one in fiftyone_samples(found, shown))
            write_text(self.to_fiftyone, "\n".join(lines) + "\n")
            written += [self.to_fiftyone]
        if self.to_huggingface is not None:
            _write_huggingface(found, self.to_huggingface)
            written += [self.to_huggingface]
        return written


def named_table(found: "LabelErrors", shown: Shown = NOTHING, rows: Frame = None) -> Frame:
    """`found.table`, or `rows` of it, with names of classes that are no numbers, texts and files where known."""
    table: Frame = (found.table if rows is None else rows).copy()
    if not _numbered(found.classes):
        table["given_label"], table["proposed_label"] = (
            _names(found, table[name].to_numpy()) for name in ("given", "proposed")
        )
    for name, values in (("text", shown.texts), ("filepath", shown.files)):
        if values is not None:
            table[name] = [str(values[row]) for row in table["sample"]]
    return table


def save_table(table: Frame, path: Path) -> Path:
    """Write a .parquet or .csv file; in csv no cell of text can be run as a formula."""
    if path.suffix == ".parquet":
        write_sealed(path, table)
    else:
        write_csv(path, table)
    return path


def cleanlab_table(found: "LabelErrors", shown: Shown = NOTHING) -> Frame:
    """Our table with the columns of cleanlab's `CleanLearning.get_label_issues`."""
    table = named_table(found, shown)
    table["is_label_issue"] = found.flagged.numpy()
    table["label_quality"] = 1 - found.scores.numpy()
    table["given_label"] = _labels(found, found.given.numpy())
    table["predicted_label"] = _labels(found, found.pred_probs.argmax(1))
    return table


def labelstudio_tasks(found: "LabelErrors", shown: Shown = NOTHING) -> list[dict[str, Any]]:
    """Tasks with predictions; the score at a prediction's root is the belief in the proposed class."""
    order = found.review_order(int(found.flagged.sum())).tolist()
    order += (found.given < 0).nonzero()[:, 0].tolist()
    return [{"data": _task_data(found, shown, row), "predictions": _predictions(found, row)} for row in order]


def labelstudio_interface(found: "LabelErrors", shown: Shown = NOTHING) -> str:
    """The labelling interface that the tasks belong to."""
    pictures = shown.files is not None or shown.pixels is not None
    kind = ("Image", "$image") if pictures else ("Text", "$text")
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in found.classes)
    return (
        '<View>\n  <Header value="$about"/>\n'
        f'  <{kind[0]} name="{OBJECT}" value="{kind[1]}"/>\n'
        f'  <Choices name="{CONTROL}" toName="{OBJECT}" choice="single" showInline="true">\n{choices}\n'
        "  </Choices>\n</View>\n"
    )


def fiftyone_samples(found: "LabelErrors", shown: Shown = NOTHING) -> Iterator[dict[str, Any]]:
    """Fields of each sample as FiftyOne stores them; a label that is missing or not proposed is null."""
    for row in named_table(found, shown).to_dict("records"):
        sure = {"confidence": float(row["confidence"])}
        yield {
            **({"filepath": row["filepath"]} if "filepath" in row else {}),
            **({"text": row["text"]} if "text" in row else {}),
            "sample": row["sample"],
            "ground_truth": _classification(found, row["given"]),
            "proposed": _classification(found, row["proposed"], **sure),
            "mistakenness": float(row["score"]),
            "flagged": bool(row["flagged"]),
        }


def _classification(found: "LabelErrors", number: int, **more: float) -> dict[str, Any] | None:
    return None if number < 0 else {"_cls": "Classification", "label": found.class_name(number), **more}


def _write_labelstudio(found: "LabelErrors", shown: Shown, path: Path) -> list[Path]:
    interface = path.with_suffix(".xml")
    write_text(path, json.dumps(labelstudio_tasks(found, shown), ensure_ascii=False, indent=1))
    write_text(interface, labelstudio_interface(found, shown))
    return [path, interface]


def _task_data(found: "LabelErrors", shown: Shown, row: int) -> dict[str, Any]:
    given, proposed = (found.class_name(int(own[row])) for own in (found.given, found.proposed))
    data: dict[str, Any] = {
        "sample": row, "given": given, "proposed": proposed, "score": float(found.scores[row]),
        "about": f"given: {given or 'none'}, proposed: {proposed or 'none'}",
        "text": f"sample {row}" if shown.texts is None else shown.texts[row],
    }  # fmt: skip
    if shown.files is not None:
        data["image"] = LOCAL_FILES + quote(_inside(shown.files, row))
    elif shown.pixels is not None:
        data["image"] = png_address(thumbnails(shown.pixels, [row], WIDEST_TASK)[0])
    return data


def _inside(files: Sequence[Path], row: int) -> str:
    """A file's path within the folder of all."""
    from os.path import commonpath

    root = commonpath([one.parent for one in files])
    return files[row].relative_to(root).as_posix()


def _predictions(found: "LabelErrors", row: int) -> list[dict[str, Any]]:
    number = int(found.proposed[row])
    if number < 0:
        return []
    choice = {"choices": [found.class_name(number)]}
    result = {"from_name": CONTROL, "to_name": OBJECT, "type": "choices", "value": choice}
    return [
        {"model_version": "undertow", "score": float(found.beliefs[row, number]), "result": [result]},
    ]


def _write_huggingface(found: "LabelErrors", path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    named = {"names": list(found.classes), "_type": "ClassLabel"}
    given, proposed = (
        pa.array(own.numpy(), pa.int64(), mask=(own < 0).numpy()) for own in (found.given, found.proposed)
    )
    table = pa.table(
        {
            "given_label": given,
            "proposed_label": proposed,
            "label_score": found.scores.double().numpy(),
            "label_flagged": found.flagged.numpy(),
        }
    )
    kinds = {"label_score": "float64", "label_flagged": "bool"}
    features = {"given_label": named, "proposed_label": named} | {
        name: {"dtype": kind, "_type": "Value"} for name, kind in kinds.items()
    }
    about = json.dumps({"info": {"features": features}})
    with aside(path) as part:
        parquet.write_table(table.replace_schema_metadata({"huggingface": about}), part)


def _numbered(classes: Sequence[str]) -> bool:
    """Whether classes are called by their numbers."""
    return list(classes) == list(map(str, range(len(classes))))


def _names(found: "LabelErrors", numbers: Any) -> Any:
    """Names of classes; None for -1, which counts from the end."""
    return np.array([*found.classes, None], dtype=object)[numbers]


def _labels(found: "LabelErrors", numbers: Any) -> Any:
    """Class numbers where classes are called so, else names; none for -1."""
    if not _numbered(found.classes):
        return _names(found, numbers)
    import pandas as pd

    whole = numbers.astype("int64")
    return pd.arrays.IntegerArray(whole, whole < 0) if (whole < 0).any() else whole
