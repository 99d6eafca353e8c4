// Derives from a run's resolved flags what its plan has to provide: the work of
// a step and the options of the state. All types are values, all functions pure.
#pragma once
#include "nn/module.h"
#include "offload/nvme_store.h"
#include "trainer/plan/planner.h"
#include "trainer/settings/optimizer_groups.h"

namespace spillway::trainer {

/// Workload is the work of one training step, or of one pass without training.
struct Workload {
  nn::Mode mode = nn::Mode::train;
  i64 micro_batches = 1, micro_batch_size = 1, sequence_length = 1;
  i64 cache_positions = 0;  // positions of the key/value cache, for Mode::generate
  bool decay_all = false;
};

/// StateWishes holds the options that only a training run has for its state.
struct StateWishes {
  optim::Master master = optim::Master::fp32;
  optim::Moments moments = optim::Moments::fp32;
  optim::Rule rule = optim::Rule::adamw;
  bool round_gradients = false, reduce_each = false, average = false;
  std::vector<std::string> freeze;
  std::vector<OptimizerGroup> optimizer_groups;
  offload::Durability durability = offload::Durability::checkpoint;

  /// Returns the state format for weights of this precision. Throws Error(usage) if the options contradict each other.
  optim::StateFormat format(Precision precision) const;
};

Workload work_of(const TrainConfig& config);
StateWishes state_of(const TrainConfig& config);

}  // namespace spillway::trainer
