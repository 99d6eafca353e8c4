// Batched matrix products with PyTorch's semantics: f32, f64, bf16 and f16 (summed in f32, rounded once), inputs of any strides. Legend: M,
// K, N = rows, inner extent, columns.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Computes torch.matmul: a[..., M, K] b[..., K, N] -> [..., M, N], with the batch extents broadcast as in numpy. An a of rank 1 is a row,
/// a b of rank 1 a column, and the result lacks that axis. The gradient of a broadcast input is the sum over its broadcast axes; each
/// product is rounded before it is added. Throws Error(bug), with the shapes and dtypes it got, on those that do not match.
Variable matmul(const Variable& a, const Variable& b);

}  // namespace spillway::ops
