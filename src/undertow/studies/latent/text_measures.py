"""A transformer that memorises wrong classes of questions, and what its layers still tell.

    rows = memorised_text(None, case="transformer-TREC 0.8", seed=0, degree=0.8, source="trec", epochs=60)

Test accuracy over the epochs, MASC and VeLPIC on every layer (tokens become one row by their mean), the fit, and the
share of the commonest class, which guessing reaches.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory

from undertow.latent.grid import probe_grid
from undertow.studies.findings import row
from undertow.studies.latent.probe_measures import COLUMNS
from undertow.studies.latent.text_data import questions
from undertow.studies.task import Rows
from undertow.studies.train_and_measure import fits
from undertow.training.config import TrainConfig
from undertow.training.loop import train
from undertow.training.prepare import prepare_data


def memorised_text(
    run: None,
    *,
    case: str,
    seed: int,
    degree: float,
    source: str,
    epochs: int,
    train_size: int,
    test_size: int,
    length: int,
    model: str,
) -> Rows:
    """Train on questions of which a share got a class drawn at random, and probe the layers on true ones.

    Options:
        degree: the share of training labels that are drawn anew.
        source: trec, or made for sentences of a small grammar.
        epochs: at most; training stops when 99 % of the labels are fitted.
        train_size: training questions.
        test_size: likewise.
        length: words of a question that are read.
        model: a transformer that takes tokens.
    """
    config = TrainConfig(
        model=model, data=source, noise=f"{degree:g}", optimiser="adam", lr=1e-3, batch_size=32, epochs=epochs,
        stop_at=0.99, seed=seed, test_at="checkpoints", checkpoints="0,1,2,4,8,12,20,40,60,80",
    )  # fmt: skip
    read = questions(source, seed=seed, train_size=train_size, test_size=test_size, length=length)
    with TemporaryDirectory() as folder:
        made = train(config, folder, data=read)
        table = probe_grid(
            made, prepare_data(config, read), probes=("masc", "velpic"), fits=("given",), out=folder
        )
        rows = [{name: line[name] for name in COLUMNS} for line in table.to_dict("records")]
        commonest = int(read.test.y.bincount().max()) / len(read.test)
        return [*rows, row("commonest_class", commonest, split="test"), *fits(made)]
