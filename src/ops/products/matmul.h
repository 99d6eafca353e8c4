// Batched matrix products with PyTorch's semantics, for f32, f64, bf16 and f16 (summed in f32, rounded once) and inputs of any strides.
// Legend: M, K, N = rows, inner dimension, columns.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Computes torch.matmul: a[..., M, K] b[..., K, N] -> [..., M, N], with the batch dimensions broadcast as in numpy. If a has rank 1, it is
/// treated as a matrix of one row; if b has rank 1, as a matrix of one column. The result lacks these axes of size 1. The gradient of a
/// broadcast input is the sum of one product for each position along its broadcast axes; each product is rounded before it is added. Throws
/// an Error(bug) that lists the shapes and dtypes if they do not match.
Variable matmul(const Variable& a, const Variable& b);

}  // namespace spillway::ops
