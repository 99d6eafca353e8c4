"""The operations under the name that PyTorch's users import: import spillway.nn.functional as F."""

from .._core import (  # noqa: F401
    avg_pool2d, conv2d, cross_entropy, elu, embedding, gelu, hardswish, huber_loss, l1_loss, layer_norm, leaky_relu, linear, log_softmax,
    max_pool2d, mish, mse_loss, nll_loss, pad, relu, rms_norm, scaled_dot_product_attention, sigmoid, silu, softmax, softplus, tanh,
)
from .._core import bce_with_logits_loss as binary_cross_entropy_with_logits  # noqa: F401
from .._core import _dropout


def dropout(input, p: float = 0.5, training: bool = True, inplace: bool = False):
    """Sets elements to 0 with probability p and scales the others by 1 / (1 - p), as nn.Dropout does."""
    return _dropout(input, p, training)
