// Rows of a table. Legend: B = rows, T = positions, V = vocabulary, C = channels.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// ids_BT (int32, each in [0, V)), weight[V, C] -> [B, T, C]; ids of any rank r give rank r + 1. The weight's gradient is dense [V, C], f32
/// of bf16; rows of a repeated id are added in ascending token order, and that of `padding_row` (-1: none) is zero, as padding_idx has it
/// in torch.nn.functional.embedding. Throws Error(data) on an id out of range.
Variable embedding(const Tensor& ids_BT, const Variable& weight, i64 padding_row = -1);

}  // namespace spillway::ops
