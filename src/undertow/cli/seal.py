"""`undertow seal`: take a run's files as they are."""

from __future__ import annotations

from pathlib import Path

from undertow.cli.given_run import check_folder
from undertow.cli.screen import console, print_json
from undertow.errors import RunProblem


def seal(run: Path, *, json: bool = False) -> None:
    """Take the files of a run as they are: those that were changed on purpose get a new seal.

    Args:
        run: The run's folder.
        json: Print the names of those files as one JSON object.
    """
    from undertow.training.seal_again import seal_again

    check_folder(run)
    if not (run / "run.json").exists():
        raise RunProblem(f"{run}: undertow wrote no run.json there. Files of others need no seal.")
    done = seal_again(run)
    if json:
        print_json({"sealed": [str(path) for path in done]})
        return
    for path in done:
        console().print(f"Sealed: {path}", markup=False)
    if not done:
        console().print("Nothing has changed.")
