"""Spillway trains models larger than GPU memory: a plan made before step 1 offloads what does not fit to host memory and NVMe.

Trainer(...).train() is `spillway train` with Python callbacks, for models by name and of your own Blocks; plan(...) shows whether and how a run would fit; Model, Tensor and the
optimizers are for your own training loop, and share memory with NumPy and PyTorch.
"""

from . import _program

_program.check_interpreter()

from . import _core
from ._core import (
    Batch, Parameter, SaveEvent, StepEvent, Tensor, TrainingResult, ValidationEvent, abs, arange, argmax, argmin, avg_pool2d, bce_with_logits_loss, cat,
    clamp, conv2d, cross_entropy, cumsum, dropout, einsum, elu, embedding, exp, from_dlpack, full, gelu, get_threads, hardswish,
    huber_loss, l1_loss, layer_norm, leaky_relu, linear, log, log_softmax, logsumexp, masked_fill, matmul, max, max_pool2d, maximum,
    mean, min, minimum, mish, mse_loss, nll_loss, no_grad, ones, pad, randn, relu, rms_norm, rsqrt, scaled_dot_product_attention,
    set_threads, sigmoid, silu, softmax, softplus, sqrt, stack, sum, tanh, tensor, topk, tril, triu, uniform, var, where, zeros,
)
from .data import write_rows, write_tokens
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
from .own_model import Block
from .optimizers import SGD, Adafactor, Adagrad, Adam, AdamW, Lion, Muon, Optimizer, RMSprop
from .reports import DoctorReport, PlanReport, Report, StatusReport, bench, command, doctor, plan, schedule, status
from .trainer import Trainer
from .training_arguments import from_training_arguments

__version__: str = getattr(_core, "__version__")
_core._set_own_program(_program.path)
