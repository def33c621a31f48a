"""undertow as a callback of Hugging Face's Trainer.

    from undertow.integrations.transformers import UndertowCallback

    watcher = UndertowCallback("runs/mine", train=train_set, test=held_out, keep="every:500steps")
    watcher.add_to(trainer)                     # numbers then go where the trainer's own go (trainer.log)
    trainer.train()

`Trainer(callbacks=[watcher])` works too: the numbers then stand in trainer_state.json only. Samples are dicts of
tensors with the labels under label or labels, or Datasets of such dicts, as the model takes them.
Steps are those of the optimiser, also with gradient accumulation. On resume the folder's own watch.json goes on.
"""

from __future__ import annotations

from typing import Any, Self

from torch import nn

from undertow.errors import NotThere
from undertow.integrations.watch import Watch

try:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError:
    raise NotThere("UndertowCallback needs transformers: pip install 'undertow[huggingface]'.") from None


class UndertowCallback(TrainerCallback):
    """Keeps checkpoints, looks at the model, warns, and writes the report at the end."""

    def __init__(self, path: Any, train: Any = None, test: Any = None, **settings: Any) -> None:
        """Say what to watch.

        Args:
            path: the run's folder.
            train: some of what the model is trained on, with its labels; see `Watch`.
            test: held-out samples with labels.
            settings: fields of `WatchConfig`: keep, measure, layers, probes, samples, report, ...
        """
        self.watch = Watch(path, train, test, **settings)
        self._trainer: Trainer | None = None

    def add_to(self, trainer: Trainer) -> Self:
        """Watch this trainer, and log with it."""
        trainer.add_callback(self)
        self._trainer = trainer
        return self

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Look at the model before training, or go on after a resume."""
        in_steps = self.watch.config.unit == "step"
        self.watch.log = lambda values, _at: self._log(state, values)
        self.watch.until(float(state.max_steps if in_steps else round(state.num_train_epochs)))
        if state.global_step:
            self.watch.resume(state.global_step if in_steps else round(state.epoch or 0))
        else:
            self.watch.moment(_model(kwargs), 0, {})

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """After a step of the optimiser."""
        if self.watch.config.unit == "step":
            self.watch.step(_model(kwargs), state.global_step)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """After an epoch."""
        self.watch.epoch(_model(kwargs), round(state.epoch or 0))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The last checkpoint and the report."""
        self.watch.close(_model(kwargs))

    def _log(self, state: TrainerState, values: dict[str, float]) -> None:
        if self._trainer is not None:
            self._trainer.log(values)
        else:
            state.log_history.append({**values, "epoch": state.epoch or 0.0, "step": state.global_step})


def _model(kwargs: dict[str, Any]) -> nn.Module:
    return kwargs["model"]
