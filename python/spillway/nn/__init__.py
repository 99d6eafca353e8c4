"""Modules with PyTorch's names, arguments and first values: for a loop of your own, and as the blocks of a Trainer's model."""

from .._core import Parameter
from . import functional, utils
from .containers import ModuleDict, ModuleList, Sequential
from .layers import (
    ELU, GELU, CrossEntropyLoss, Dropout, Embedding, Flatten, Hardswish, Identity, LayerNorm, LeakyReLU, Linear, Mish, MSELoss, ReLU, RMSNorm,
    Sigmoid, SiLU, Softmax, Softplus, Tanh,
)
from .module import Module
