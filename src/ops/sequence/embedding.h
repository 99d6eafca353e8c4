// Embedding lookup: picks rows of a weight table by token id. Legend: B = batch size, T = positions, V = vocabulary, C = channels.
#pragma once
#include "autograd/tape.h"

namespace spillway::ops {

using autograd::Variable;

/// Returns [B, T, C], the rows of weight[V, C] that ids_BT names (int32, each in [0, V)); ids of any rank r give rank r + 1. The weight's
/// gradient is a dense [V, C] tensor, f32 for a bf16 weight. Gradients of a repeated id are added in ascending token order. Row
/// `padding_row` (-1: none) gets a zero gradient, as with padding_idx in torch.nn.functional.embedding. Throws Error(data) on an id out of
/// range.
Variable embedding(const Tensor& ids_BT, const Variable& weight, i64 padding_row = -1);

}  // namespace spillway::ops
