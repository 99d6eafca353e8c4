// Products of batches of matrices, f32, f64, bf16 and f16 (summed in f32, rounded once), inputs of any strides, in PyTorch's words. Legend:
// M, K, N = rows, inner extent, columns.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// torch.matmul: a[..., M, K] b[..., K, N] -> [..., M, N], the batch extents stretched as numpy does; a of rank 1 is a row and b of rank 1
/// a column, and the result is without that axis. The gradient of a stretched input is the sum over the axes it was stretched along, each
/// product rounded before. Throws Error(bug), with the shapes and dtypes that came, on those that do not go together.
Variable matmul(const Variable& a, const Variable& b);

}  // namespace spillway::ops
