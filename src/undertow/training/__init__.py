"""Training: the loop, checkpoint schedules, interventions, the recorder and the run's folder.

run = train(TrainConfig(model="mlp:256-256", data="digits", noise="0.4"), "runs/d40")
run = open_run("runs/d40")                  # or anyone's folder of checkpoints, with model=
recorder = Recorder("runs/mine")            # for anyone's own loop
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
