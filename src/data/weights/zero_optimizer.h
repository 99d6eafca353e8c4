// One data-parallel rank's *_optim_states.pt of a checkpoint of DeepSpeed's. Values; errors as zero_checkpoint.h's.
#pragma once
#include <map>

#include "data/weights/torch_tree.h"
#include "data/weights/zero_checkpoint.h"

namespace spillway::data {

struct ZeroOptimizer {
  int stage = 0;
  i64 ranks = 0;
  std::optional<i64> updates;
  std::vector<TorchTensor> weights;                        // this rank's part of each group, fp32
  std::map<std::string, std::vector<TorchTensor>> arrays;  // of each group; those alone that all groups have
  std::vector<std::vector<i64>> paddings;                  // behind each parameter of each group, elements; empty: none
  std::optional<ZeroCheckpoint::Scale> loss_scale;
};

ZeroOptimizer zero_optimizer(const std::filesystem::path& path, const TorchArchive& archive);

/// Of a number or a tensor of one: whole, from 0.
std::optional<i64> whole_number(const TorchTree& tree, const PickleNode& node);

}  // namespace spillway::data
