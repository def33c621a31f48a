"""undertow as a callback of Lightning.

    from undertow.integrations.lightning import UndertowCallback

    watcher = UndertowCallback("runs/mine", train=train_set, test=held_out, keep="every:5")
    Trainer(callbacks=[watcher], ...).fit(module, loader)
    watcher.watch.looks, watcher.watch.audit        # what was found; runs/mine/report.html

Numbers go to all of the trainer's loggers, and at the end of an epoch into `callback_metrics` too, so that
EarlyStopping and ModelCheckpoint can go by "undertow/test_accuracy" or "undertow/d_lr". Checkpoints are those of the
LightningModule, whose forward must answer with one row of class scores per sample; `part` picks another module.

Works with one process and with DDP. A strategy that splits the weights themselves (FSDP, DeepSpeed) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from undertow.errors import BadValue, NotThere
from undertow.integrations.processes import is_first
from undertow.integrations.watch import Watch

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback, LightningModule, Trainer
    except ImportError:
        try:
            from pytorch_lightning import Callback, LightningModule, Trainer
        except ImportError:
            raise NotThere("UndertowCallback needs Lightning: pip install 'undertow[lightning]'.") from None

SPLITTING = ("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")


class UndertowCallback(Callback):
    """Keeps checkpoints, looks at the model, warns, and writes the report at the end."""

    def __init__(
        self,
        path: Any,
        train: Any = None,
        test: Any = None,
        *,
        part: Callable[[LightningModule], nn.Module] | None = None,
        **settings: Any,
    ) -> None:
        """Say what to watch.

        Args:
            path: the run's folder.
            train: some of what the model is trained on, with its labels; see `Watch`.
            test: held-out samples with labels.
            part: the module to watch, of the LightningModule; the whole when not given.
            settings: fields of `WatchConfig`: keep, measure, layers, probes, samples, report, ...
        """
        self.watch = Watch(path, train, test, **settings)
        self._part = part
        self._steps = 0
        # Asked for at every hook of every batch: nothing is worked out there.
        self._key = f"UndertowCallback[{self.watch.path}]"
        self._in_steps = self.watch.config.unit == "step"

    @property
    def state_key(self) -> str:
        """Several callbacks of one trainer are told apart by their folders."""
        return self._key

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the model before training, or go on after a resume."""
        if (name := type(trainer.strategy).__name__) in SPLITTING:
            raise BadValue("UndertowCallback", "a model that is whole on each process (DDP)", name)
        self.watch.log = lambda values, _at: self._log(trainer, values)
        most = trainer.estimated_stepping_batches if self._in_steps else (trainer.max_epochs or -1)
        self.watch.until(float(most) if most and most > 0 else float("inf"))
        self._steps = trainer.global_step
        done = trainer.global_step if self._in_steps else trainer.current_epoch
        if trainer.global_step:
            self.watch.resume(done)
        else:
            self.watch.moment(self._module(pl_module), 0, {})

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Only batches that end a step of the optimiser count, also with gradient accumulation."""
        if self._in_steps and (done := trainer.global_step) != self._steps:
            self._steps = done
            self.watch.step(self._module(pl_module), done, **self._numbers(trainer, done))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep and look where that is due."""
        done = trainer.current_epoch + 1
        look = self.watch.epoch(self._module(pl_module), done, **self._numbers(trainer, done))
        if look is not None:
            # The loggers have it already: this is for callbacks that monitor it. All processes know the same numbers.
            values = {f"undertow/{name}": value for name, value in look.measures().items()}
            pl_module.log_dict(values, logger=False, on_step=False, on_epoch=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The last checkpoint and the report."""
        self.watch.close(self._module(pl_module))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """What was kept so far is written out."""
        self.watch.close()

    def state_dict(self) -> dict[str, Any]:
        """Plain values, which a checkpoint gives back with weights_only=True."""
        return self.watch.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint of the trainer."""
        self.watch.load_state_dict(state_dict)

    def _module(self, module: LightningModule) -> nn.Module:
        return module if self._part is None else self._part(module)

    def _numbers(self, trainer: Trainer, at: int) -> dict[str, float]:
        """What the training logged itself; gathered only where a checkpoint is kept, for that takes a moment."""
        return _numbers(trainer) if self.watch.due(at) else {}

    def _log(self, trainer: Trainer, values: dict[str, float]) -> None:
        if is_first():
            for logger in trainer.loggers:
                logger.log_metrics(values, step=trainer.global_step)


def _numbers(trainer: Trainer) -> dict[str, float]:
    """What the training logged itself, to stand beside the checkpoint; vectors and our own numbers are left out."""
    logged: Mapping[str, Any] = trainer.callback_metrics
    return {
        name: float(value)
        for name, value in logged.items()
        if not name.startswith("undertow/") and torch.as_tensor(value).numel() == 1
    }
