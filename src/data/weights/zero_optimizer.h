// Reads one data-parallel rank's *_optim_states.pt file of a DeepSpeed checkpoint. The errors are those of zero_checkpoint.h.
#pragma once
#include <map>

#include "data/torch/torch_tree.h"
#include "data/weights/zero_checkpoint.h"

namespace spillway::data {

struct ZeroOptimizer {
  int stage = 0;
  i64 ranks = 0;
  std::optional<i64> updates;
  std::vector<TorchTensor> weights;                        // the fp32 weights of this rank's partition, one tensor for each group
  std::map<std::string, std::vector<TorchTensor>> arrays;  // for each array name, one tensor per group; only arrays that all groups have
  // The number of padding elements after each parameter, by group. The list is empty if there is no padding.
  std::vector<std::vector<i64>> paddings;
  std::optional<ZeroCheckpoint::Scale> loss_scale;
};

ZeroOptimizer zero_optimizer(const std::filesystem::path& path, const TorchArchive& archive);

/// Reads a whole number of at least 0 from a node that is a number, or a tensor with one element. Returns nothing for any other node.
std::optional<i64> whole_number(const TorchTree& tree, const PickleNode& node);

}  // namespace spillway::data
