"""Whether inputs by name are those that a model takes, and that padding never counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from undertow.errors import BadData, UnknownName
from undertow.features.compatibility import check_fit, check_used, explained
from undertow.features.stream import stream_features
from undertow.features.tap import Tap

IDS = torch.tensor([[5, 6, 7, 0], [0, 8, 9, 10]])
MASK = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1]])  # padded at the end, and at the beginning
TEXT = {"input_ids": IDS, "attention_mask": MASK}


class Words(nn.Module):
    """An embedding with its mean as the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 3)

    def forward(self, input_ids, attention_mask=None):
        return self.table(input_ids).mean(1)


class Swallowing(Words):
    def forward(self, input_ids, attention_mask=None, **kwargs):
        return super().forward(input_ids, attention_mask)


class Handing(Swallowing):
    """Takes by **kwargs what it uses after all, as wrappers do."""

    def forward(self, **kwargs):
        return self.table(kwargs["input_ids"]).mean(1) + kwargs.get("shift", torch.zeros(2))[:, None]


def test_a_name_that_forward_does_not_take():
    with (
        Tap(Words(), "table") as tap,
        pytest.raises(UnknownName, match=r"no input of Words 'attention_maks'.*mask"),
    ):
        tap({"input_ids": IDS, "attention_maks": MASK})


def test_a_name_that_is_swallowed():
    """Fails if `**kwargs` hides a misspelt mask: every padding token would count."""
    with pytest.raises(UnknownName, match="no input of Swallowing 'attention_maks'"):
        check_used(Swallowing(), {"input_ids": IDS, "attention_maks": MASK})
    with pytest.raises(UnknownName, match="'shifts'"):
        check_used(Handing(), {"input_ids": IDS, "shifts": torch.ones(2)})


@pytest.mark.parametrize(
    ("model", "inputs"),
    [(Swallowing(), TEXT), (Handing(), {"input_ids": IDS, "shift": torch.ones(2)}), (Swallowing(), {"input_ids": IDS,
     "verbose": False}), (Words(), IDS)],
)  # fmt: skip
def test_what_is_used_or_named_or_an_option_passes(model, inputs):
    model.train()
    check_used(model, inputs)
    assert model.training


def test_transformers_swallow_and_are_found_out():
    transformers = pytest.importorskip("transformers")
    small = {"vocab_size": 12, "num_labels": 2}
    bert = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, **small
        )
    )
    gpt2 = transformers.GPT2ForSequenceClassification(
        transformers.GPT2Config(
            n_embd=8, n_layer=1, n_head=1, pad_token_id=0, bos_token_id=1, eos_token_id=1, **small
        )
    )
    for model in (bert, gpt2):
        check_used(model, TEXT)
        with pytest.raises(UnknownName, match="Did you mean 'attention_mask'"):
            check_used(model, {"input_ids": IDS, "attention_masks": MASK})


def test_what_a_model_says_becomes_one_sentence():
    few = {"input_ids": torch.tensor([[50]])}
    with (
        pytest.raises(
            BadData, match=r"Words cannot take samples of shape input_ids \(1,\) \(mine\): index"
        ) as told,
        explained(Words(), few, "mine"),
    ):
        Words()(**few)
    assert "\n" not in str(told.value)
    with pytest.raises(UnknownName, match="kept"), explained(Words(), few, "mine"):
        raise UnknownName("kept")


@pytest.mark.parametrize("rule", ["mean", "last"])
def test_padding_at_either_end_is_left_out_also_across_batches(rule):
    """Against a loop over samples and tokens in float64; padding holds numbers that would show."""
    model, draw = Words(), torch.Generator().manual_seed(0)
    ids = torch.randint(1, 12, (9, 7), generator=draw)
    mask = torch.zeros(9, 7, dtype=torch.int64)
    for row in range(9):
        length = 1 + row % 6
        mask[row, :length] = 1
        if row % 2:
            mask[row] = mask[row].flip(0)
    with torch.no_grad():
        model.table.weight[0] = torch.nan  # what a masked token holds must not matter
    x = {"input_ids": ids * mask, "attention_mask": mask}
    found = torch.cat(
        [part.features["table"] for part in stream_features(model, x, "table", batch_size=4, tokens=rule)]
    )
    table = model.table.weight.detach().double().numpy()
    for row in range(9):
        kept = [table[int(token)] for token, use in zip(ids[row], mask[row], strict=True) if use]
        want = np.mean(kept, axis=0) if rule == "mean" else kept[-1]
        np.testing.assert_allclose(found[row].numpy(), want, rtol=1e-5, atol=1e-6)


def test_unequal_entries_are_named_by_a_stream():
    with pytest.raises(BadData, match="got input_ids 2, attention_mask 1"):
        next(stream_features(Words(), {"input_ids": IDS, "attention_mask": MASK[:1]}, "table"))


class Two(nn.Module):
    def forward(self, left, right):
        return left @ torch.ones(3, 2) + right


def test_positional_inputs_and_options_are_tried_too():
    check_fit(Two(), (torch.ones(4, 3), torch.ones(4, 2)), "mine")
    with pytest.raises(BadData, match=r"Two cannot take samples of shape \(3,\) and \(5,\) \(mine\)"):
        check_fit(Two(), (torch.ones(4, 3), torch.ones(4, 5)), "mine")
    check_fit(Swallowing(), {**TEXT, "verbose": False}, "mine")


def test_a_token_beyond_the_vocabulary_is_met_wherever_it_stands():
    """Fails if only the first samples are tried."""
    ids = torch.ones(500, 4, dtype=torch.int64)
    ids[321, 2] = 12
    with pytest.raises(BadData, match="Words cannot take samples"):
        check_fit(Words(), {"input_ids": ids}, "mine")


class Particular(nn.Module):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.layer, self.error = nn.Linear(4, 2), error

    def forward(self, x):
        raise self.error


def test_an_assertion_of_the_model_is_one_sentence_and_want_of_memory_is_not_the_datas_fault():
    with pytest.raises(BadData, match=r"Particular cannot take samples .*wrong size\. Give the data"):
        check_fit(Particular(AssertionError("wrong size")), torch.zeros(3, 4), "train")
    with pytest.raises(torch.OutOfMemoryError):
        check_fit(Particular(torch.OutOfMemoryError("no memory")), torch.zeros(3, 4), "train")


def test_a_forward_that_ends_the_program_is_told():
    """Fails if its exit code becomes that of the program."""

    class Ends(nn.Module):
        def forward(self, x):
            raise SystemExit(3)

    with pytest.raises(BadData, match=r"Ends: wanted outputs, but its forward ends .* \(SystemExit: 3\)"):
        check_fit(Ends(), torch.zeros(4, 3), "train")
