"""One probe fitted at several layers of a model, within a memory budget.

fit_probes(reader, train, 10, ["layer1", ENTERING], "velpic")   # name -> a fitted probe or a reason
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from undertow.data.samples import Samples
from undertow.features.stream import Batch
from undertow.latent.layer import Outcome
from undertow.latent.sources import plan_groups, room_for_fits, source_for
from undertow.session.reader import Reader
from undertow.session.splits import Split, take
from undertow.sizes import parse_size


def fit_probes(
    reader: Reader, train: Split, classes: int, layers: Sequence[str], probe: str, memory: str = "2GB"
) -> dict[str, Outcome]:
    """The probe called `probe`, fitted at each layer, or why it cannot be; features keep to the memory budget."""
    # The sources of the probe grid know samples by number here: inputs may be dicts of tensors.
    rows = Samples.of(torch.arange(len(train.y)), train.y)
    nothing = rows.take(torch.arange(0))

    def stream(samples: Samples, wanted: Sequence[str]) -> Iterator[Batch]:
        return reader.stream(train.x, wanted) if len(samples) else iter(())

    first = next(reader.stream(take(train.x, torch.arange(min(2, len(train.y)))), layers))
    dims = {name: part.shape[1] for name, part in first.features.items()}
    budget = parse_size(memory)
    passes, _ = plan_groups(dims, rows, nothing, classes, budget, reader.batch_size)
    found: dict[str, Outcome] = {}
    for group, route in passes:
        source = source_for(stream, rows, nothing, group, route, classes, room_for_fits(budget, route))
        found |= {layer: source.fit(layer, {"given": train.y}, [probe])["given", probe] for layer in group}
        del source  # before the next pass holds its features
    return found
