"""Spillway trains models that do not fit: on a plan made before step 1, from GPU memory over host memory to NVMe.

Trainer(...).train() is `spillway train` with Python's callbacks; plan(...) says whether and how a run would fit; Model, Tensor and the
optimizers are for a loop of one's own, beside NumPy and PyTorch, whose memory they share.
"""

from . import _core, _program
from ._core import *  # noqa: F403: tensors and every operation on them; _core.pyi has them with their types
from ._core import SaveEvent, StepEvent, Tensor, TrainingResult, ValidationEvent, __version__
from .data import write_tokens
from .errors import (
    DataError,
    DeviceError,
    InternalError,
    NumbersError,
    PeerError,
    RefusedError,
    SpillwayError,
    UsageError,
)
from .models import Model
from .optimizers import SGD, Adafactor, Adagrad, Adam, AdamW, Lion, Muon, Optimizer, RMSprop
from .reports import Report, bench, command, doctor, plan, schedule, status
from .trainer import Trainer

_core._set_own_program(_program.path)
del Training  # noqa: F821: Trainer's inside
