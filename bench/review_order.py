"""Test accuracy gained by reviewing suspected labels, in several orders.

    UNDERTOW_DATA=... python bench/review_order.py --seeds 5-14

2,000 MNIST samples, pixels as features; reviewed labels become true ones; a logistic regression on all labels is tested
on 5,000 others. The order was chosen on seeds 0 to 4, so report others. Gains are points over no review.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import undertow as ut
from undertow.data.load import load_data

NOISES = (("uniform", 0.2), ("uniform", 0.4), ("next class", 0.3), ("4 as 9", 0.1))
COUNTS = (100, 200, 300, 400)


def corrupt(true: np.ndarray, kind: str, rate: float, draws: np.random.Generator) -> np.ndarray:
    """Labels with noise; "4 as 9" calls 60 % of the fours nines, beside uniform noise."""
    picked = draws.random(len(true)) < rate
    step = 1 if kind == "next class" else draws.integers(1, 10, len(true))
    labels = np.where(picked, (true + step) % 10, true)
    if kind == "4 as 9":
        labels[(true == 4) & (draws.random(len(true)) < 0.6)] = 9
    return labels


def orders_of(found: ut.LabelErrors, draws: np.random.Generator) -> dict[str, np.ndarray]:
    """Sample numbers in the orders compared."""
    by_score = found.scores.argsort(descending=True, stable=True).numpy()
    flagged = found.flagged.numpy()
    suspects, others = by_score[flagged[by_score]], by_score[~flagged[by_score]]
    return {
        "random": draws.permutation(len(by_score)),
        "score": np.concatenate([suspects, others]),
        "random suspects": np.concatenate([draws.permutation(suspects), others]),
        "review order": found.review_order(len(by_score)).numpy(),
    }


def measure(data: ut.DataSet, kind: str, rate: float, seed: int) -> list[dict[str, object]]:
    """Gains of all orders for one draw of samples and noise."""
    draws = np.random.default_rng(seed)
    rows, tested = (draws.permutation(len(part))[:n] for part, n in ((data.train, 2000), (data.test, 5000)))
    x, test_x = (
        part.x[own].float().flatten(1).numpy() / 255
        for part, own in ((data.train, rows), (data.test, tested))
    )
    true, test_y = data.train.y[rows].numpy(), data.test.y[tested].numpy()
    given = corrupt(true, kind, rate, draws)

    def accuracy(labels: np.ndarray) -> float:
        return 100 * LogisticRegression(C=0.1, max_iter=60).fit(x, labels).score(test_x, test_y)

    before, gains = accuracy(given), list[dict[str, object]]()
    for order, samples in orders_of(ut.label_errors(features=x, labels=given), draws).items():
        for count in COUNTS:
            labels = given.copy()
            labels[samples[:count]] = true[samples[:count]]
            gain = accuracy(labels) - before
            gains.append({"noise": f"{kind} {rate}", "order": order, "reviewed": count, "gain": gain})
    return gains


def main() -> None:
    """Print the mean gains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="5-14")
    first, last = map(int, parser.parse_args().seeds.split("-"))
    data = load_data("mnist")
    rows = [
        row for noise in NOISES for seed in range(first, last + 1) for row in measure(data, *noise, seed=seed)
    ]
    table = pd.DataFrame(rows).pivot_table("gain", ["noise", "order"], "reviewed", sort=False)
    print(table.round(2).to_string())


if __name__ == "__main__":
    main()
