// The data of one training step. The loader (data/) yields whole steps; blocks (nn/) read the micro-batch through their Context on every
// pipeline stage, so only activations travel between blocks. Shape letters: B = rows, T = positions; for images N = images, C = channels, H
// x W.
#pragma once
#include <array>
#include <vector>

#include "tensor/tensor.h"

namespace spillway {

/// A target that does not contribute to the loss (Hugging Face's -100). Every negative target is ignored.
constexpr i32 kIgnoredTarget = -100;
/// The target of a position that holds no token, that is, padding behind the documents of a row. It is ignored too, and the router loss
/// leaves the position out.
constexpr i32 kPaddingTarget = -101;

struct MicroBatch {
  Tensor tokens_BT, targets_BT, positions_BT;  // i32, contiguous
  i64 first_sample = 0;                        // number of row 0 counted over the whole run; it is part of the dropout key
  i64 counted_targets = 0;                     // number of targets that contribute to the loss
  i64 padding = 0;                             // number of positions whose target is kPaddingTarget
  i64 data_tokens = 0;                         // positions that hold a token of the data, not padding; number of images for image models
  Tensor images_NCHW;                          // input of image models, whose targets are [N]; floating, contiguous
  bool packed = false;                         // rows hold several documents, each with positions that begin at 0
  Tensor key_positions_BT;                     // positions of all keys, for packed rows that continue from a cache; i32, contiguous

  /// Returns all tensors of the micro-batch. Those that the model does not read are undefined.
  std::array<Tensor*, 5> tensors() { return {&tokens_BT, &targets_BT, &positions_BT, &images_NCHW, &key_positions_BT}; }
};

struct StepBatch {
  i64 cursor = 0;           // windows consumed by the run before this step
  i64 counted_targets = 0;  // targets that contribute to the loss, over all micro-batches of this rank
  i64 data_tokens = 0;      // the sum of MicroBatch::data_tokens over all micro-batches of this rank
  std::vector<MicroBatch> micro_batches;
};

}  // namespace spillway
