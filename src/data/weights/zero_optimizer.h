// Reads one data-parallel rank's *_optim_states.pt file of a DeepSpeed checkpoint. Errors as in zero_checkpoint.h.
#pragma once
#include <map>

#include "data/weights/torch_tree.h"
#include "data/weights/zero_checkpoint.h"

namespace spillway::data {

struct ZeroOptimizer {
  int stage = 0;
  i64 ranks = 0;
  std::optional<i64> updates;
  std::vector<TorchTensor> weights;                        // this rank's partition of each group, fp32
  std::map<std::string, std::vector<TorchTensor>> arrays;  // one tensor per group; only arrays that all groups have
  std::vector<std::vector<i64>> paddings;                  // padding elements after each parameter, by group; empty if none
  std::optional<ZeroCheckpoint::Scale> loss_scale;
};

ZeroOptimizer zero_optimizer(const std::filesystem::path& path, const TorchArchive& archive);

/// Reads a whole number of at least 0 from a number or from a tensor with one element. Returns nothing for any other node.
std::optional<i64> whole_number(const TorchTree& tree, const PickleNode& node);

}  // namespace spillway::data
