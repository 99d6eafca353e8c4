// Defines MicroBatch and StepBatch, the data of one training step. The loader (data/) yields whole steps.
// Blocks (nn/) read the micro-batch through their Context on every pipeline stage, so only activations
// travel between blocks. Shape letters: B = batch size, T = positions; for images N = images, C = channels, H x W.
#pragma once
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace spillway {

/// The target of a position that does not contribute to the loss (Hugging Face's -100). Every negative target is ignored.
constexpr i32 kIgnoredTarget = -100;
/// The target of a position that holds no token, that is, padding behind the documents of a sequence. The loss ignores it like every
/// negative target; in addition, the router loss leaves the position out.
constexpr i32 kPaddingTarget = -101;

/// The name and shape of one of a model's own inputs: tensors that the model reads for each sample in place of tokens or an image.
struct InputShape {
  std::string name;
  Shape shape;  // the shape for one sample; a micro-batch holds [B, ...]
  DType dtype = DType::f32;
};

struct MicroBatch {
  Tensor tokens_BT, targets_BT, positions_BT;  // the tensors are i32 and contiguous
  i64 first_sample = 0;                        // the index of the first sequence or image among all of the run, part of the dropout key
  i64 counted_targets = 0;                     // the number of targets that contribute to the loss
  i64 padding = 0;                             // the number of positions whose target is kPaddingTarget
  i64 data_tokens = 0;                         // the number of positions that hold a token of the data; for image models, of images
  Tensor images_NCHW;                          // the input of image models, whose targets are [N]; floating, contiguous
  bool packed = false;                         // whether a sequence holds several documents, each with positions that begin at 0
  // Positions of all keys, cached ones included, for packed sequences that continue from a key/value cache. Type i32, contiguous.
  Tensor key_positions_BT;
  std::vector<Tensor> inputs;  // [B, ...] for each of nn::Sequential::inputs; with them the targets are [B], 0 or kPaddingTarget
  Tensor row_mask_B;           // with `inputs` only: 1 for an entry of the batch that holds a sample, 0 for padding; u8, contiguous
  i64 samples = 0;             // with `inputs` only: the number of entries that hold a sample; they stand before the padding
  u64 number = 0;              // micro-batches of a process that have the same number hold the same samples; 0: they hold made-up numbers

  /// Returns all tensors of the micro-batch. Tensors that the model does not read are undefined.
  std::vector<Tensor*> tensors() {
    std::vector<Tensor*> all{&tokens_BT, &targets_BT, &positions_BT, &images_NCHW, &key_positions_BT, &row_mask_B};
    for (Tensor& input : inputs) all.push_back(&input);
    return all;
  }
};

/// Creates an uninitialised micro-batch of `rows` samples for a model that declares its own inputs, in memory
/// of the current stream. Throws Error(usage) for a shape of more than Shape::kMaxRank - 1 dimensions.
MicroBatch empty_batch(const std::vector<InputShape>& inputs, i64 rows);

struct StepBatch {
  i64 cursor = 0;           // the number of rows of the data set that the run consumed before this step
  i64 counted_targets = 0;  // the number of targets that contribute to the loss, over all micro-batches of this rank
  i64 data_tokens = 0;      // the sum of MicroBatch::data_tokens over all micro-batches of this rank
  std::vector<MicroBatch> micro_batches;
};

}  // namespace spillway
