"""Spillway trains models larger than GPU memory: a plan made before step 1 offloads what does not fit to host memory and NVMe.

Trainer(...).train() is `spillway train` with Python callbacks, for models by name and of your own Modules; plan(...) shows whether and how a
run would fit; Model, Tensor, nn and optim are for your own training loop, and share memory with NumPy and PyTorch.
"""

from . import _program

_program.check_interpreter()

from . import _core
from .typed import no_grad  # imported before _core, because it words the errors of _core
from ._core import (
    Batch, Parameter, SaveEvent, StepEvent, Tensor, ValidationEvent, abs, add, all, allclose, amax, amin, any, arange,
    argmax, argmin, argsort, as_tensor, avg_pool2d, bce_with_logits_loss, bitwise_and, bitwise_not, bitwise_or, bitwise_xor, bmm, cat,
    ceil, chunk, clamp, clip, concat, conv2d, cos, cross_entropy, cumsum, div, dot, dropout, einsum, elu, embedding, empty, empty_cache, empty_like,
    eq, equal, erf, exp, expm1, eye, flatten, flip, floor, floor_divide, from_dlpack, from_numpy, full, full_like, gather, ge, gelu,
    get_threads, gt, hardswish, huber_loss, index_select, isfinite, isinf, isnan, l1_loss, layer_norm, le, leaky_relu, linear, linspace,
    log, log10, log1p, log2, log_softmax, logical_and, logical_not, logical_or, logical_xor, logsumexp, lt, masked_fill, matmul, manual_seed, max,
    max_pool2d, maximum, mean, min, minimum, mish, mm, mse_loss, mul, multiply, ne, neg, negative, nll_loss, nonzero, norm, ones,
    ones_like, pad, permute, pow, prod, randn, reciprocal, relu, remainder, reshape, rms_norm, round, rsqrt,
    scaled_dot_product_attention, set_threads, sigmoid, sign, silu, sin, softmax, softplus, sort, split, sqrt, square, squeeze, stack,
    std, sub, sum, swapaxes, t, tanh, tensor, topk, transpose, tril, triu, true_divide, trunc, uniform, unsqueeze, var, where, zeros,
    zeros_like,
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
from .models import Model, Tokenizer
from . import nn
from .nn import Module as Block
from . import optim
from .optim import SGD, Adafactor, Adagrad, Adam, AdamW, Lion, Muon, Optimizer, RMSprop
from .reports import DoctorReport, PlanReport, Report, StatusReport, bench, command, doctor, plan, schedule, status
from .trainer import Trainer, TrainingResult
from .training_arguments import from_training_arguments

__version__: str = getattr(_core, "__version__")
_core._set_own_program(_program.path)

# The element types under PyTorch's names. tensor.dtype gives the same strings.
float32 = float = "f32"
float64 = double = "f64"
float16 = half = "f16"
bfloat16 = "bf16"
int64 = long = "i64"
int32 = int = "i32"
uint8 = "u8"
bool = "bool"
