// What a training step eats. The loader (data/) yields whole steps; blocks (nn/) read the micro-batch through their Context, on every
// pipeline stage, so that only activations travel between blocks. Legend: B = rows, T = positions; of images N, C channels, H x W.
#pragma once
#include <array>
#include <vector>

#include "tensor/tensor.h"

namespace spillway {

/// A target that is not counted (Hugging Face's -100): every negative target is ignored.
constexpr i32 kIgnoredTarget = -100;
/// The target of a position that holds no token: padding behind the documents of a row. It is ignored too, and the router loss leaves the
/// position out.
constexpr i32 kPaddingTarget = -101;

struct MicroBatch {
  Tensor tokens_BT, targets_BT, positions_BT;  // i32, contiguous
  i64 first_sample = 0;                        // number of row 0 over the whole run: keys dropout
  i64 counted_targets = 0;                     // targets that are not ignored
  i64 padding = 0;                             // positions whose target is kPaddingTarget
  i64 data_tokens = 0;                         // positions that hold a token of the data, not padding; of image models images
  Tensor images_NCHW;                          // of image models, whose targets are [N]; floating, contiguous
  bool packed = false;                         // rows of several documents, in each of which positions begin at 0
  Tensor key_positions_BT;                     // of packed rows that go on from a cache: of all keys, i32, contiguous

  /// Those that a model does not read are undefined.
  std::array<Tensor*, 5> tensors() { return {&tokens_BT, &targets_BT, &positions_BT, &images_NCHW, &key_positions_BT}; }
};

struct StepBatch {
  i64 cursor = 0;           // windows consumed by the run before this step
  i64 counted_targets = 0;  // over all micro-batches of this rank
  i64 data_tokens = 0;      // likewise
  std::vector<MicroBatch> micro_batches;
};

}  // namespace spillway
