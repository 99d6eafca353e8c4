// Everything decided before step 1 for one rank: its layout, placement, Programs, and the exact bytes of every tier by use. Bytes of
// activations come from a run of the Programs on the meta device. Values; a function of the request alone.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "nn/key_value_cache.h"
#include "offload/nvme_store.h"
#include "parallel/blocks/block_runner.h"
#include "parallel/layout/residency.h"
#include "parallel/program/generate.h"

namespace spillway::parallel {

/// Two chunks read ahead, one computed, two written behind.
constexpr i64 kLeastStagingBuffers = 5;

/// Peaks of activations that dry runs of one model found, by what they computed: plans that compute alike are not run again.
using DryRuns = std::map<std::string, i64>;

struct PlanRequest {
  const nn::Sequential* model = nullptr;
  Layout layout;  // of the whole model
  Placement placement;
  Scheduling scheduling;
  i64 micro_batch_size = 1, sequence_length = 1;
  i64 cache_positions = 0;                         // above 0, without training: of the key/value cache that text is generated with, whose
                                                   // passes have at most sequence_length new positions (pass_lengths)
  bool training = true;                            // false: weights only
  Device::Kind device = Device::Kind::cpu;         // what computes
  nn::Mode without_training = nn::Mode::generate;  // or evaluate: what runs then
  /// Speculate (overlap backward) while clipping is rare, else defer (forward): two Programs.
  bool adaptive_overlap = false;
  bool gpu_to_gpu = false;             // what lies on GPUs goes to other ranks' without host memory
  std::vector<u32> stripe_weights{1};  // of the nvme paths
  i64 staging_buffers = kLeastStagingBuffers;
  std::shared_ptr<DryRuns> dry_runs;  // of requests for this model, as it is; null: nothing is remembered
};

/// One line of the memory table: bytes of one use in each tier.
struct PlanRow {
  std::string what;
  std::array<i64, offload::kTiers> bytes{};
};

struct Plan {
  Layout layout;
  Placement placement;
  Scheduling scheduling;
  Residency residency;  // what these three come to
  bool training = true;
  Device::Kind device = Device::Kind::cpu;
  i64 micro_batch_size = 1, sequence_length = 1, cache_positions = 0;
  std::vector<BlockOutput> outputs;  // by block, where any goes to another pipeline rank
  std::vector<i64> live;             // by block, when training: micro-batches whose activations it may keep at once
  Program train, forward;
  std::optional<Program> train_when_clipping;  // adaptive overlap: instead of `train` while clipping bites often
  i64 logits_bytes = 0;  // of a micro-batch, when training: that the last block keeps or makes again; 0: never made again
  i64 moving_slab_bytes = 0, spill_slab_bytes = 0, activation_slab_bytes = 0, input_bytes = 0;
  i64 cache_bytes = 0;                                // of keys and values
  i64 tile_sums = 0;                                  // of squares: of all tiles of the model
  i64 norm_bytes = 0;                                 // in host memory, when training: they, and what all ranks tell each other of them
  i64 sums_bytes = 0;                                 // with a GPU, on either side: they, and a loss a micro-batch
  i64 bounce_bytes = 0, bounces = 0;                  // likewise: buffers of either way between it and nvme
  bool gpu_to_gpu = false;                            // as requested, where there is a GPU and other ranks
  i64 pass_bytes = 0;                                 // of each lane's two buffers in host memory between the GPU and other ranks
  i64 exchange_bytes = 0;                             // or of the GPU's one, where GPUs talk to each other
  i64 staging_buffer_bytes = 0, staging_buffers = 0;  // 0 when nothing is staged
  i64 whole_bytes = 0;                            // in host memory: in which the largest of what is stepped as a whole gets its direction
  i64 whole_gpu_bytes = 0;                        // of a GPU, which multiplies for that, of matrices
  i64 chunk_tiles = 0;                            // tiles of a staging buffer, and of a buffer of the checkpoint queue
  i64 queue_buffer_bytes = 0, queue_buffers = 0;  // checkpoint queue, when training
  offload::StoreDescription store;                // of what lies on nvme; folders and run id are the session's
  std::vector<PlanRow> rows;
  std::array<i64, offload::kTiers> total{};

  /// Of weights and optimizer state: two where a step writes beside what readers see. On nvme always, so that a crash leaves one whole.
  int slots(Tier tier) const { return training && (tier == Tier::nvme || train.overlap == OptimizerOverlap::backward) ? 2 : 1; }
  DType resting_gradient(GroupUse use) const { return residency[use.group].resting_gradient[use.use]; }
  bool gradient_rests(const Group& group, u8 use) const { return residency[group.id].gradient_rests[use]; }
  TileRange held_weights(const Group& group) const { return residency[group.id].weights.held; }
  TileRange held_gradients(const Group& group) const { return residency[group.id].gradients.held; }
  /// What this rank steps, and holds the optimizer state of; of frozen weights, what it saves.
  TileRange stepped(const Group& group) const { return layout.owns(group) ? residency[group.id].stepped : TileRange(); }
  /// Of a bucket, in tiles of its group.
  TileRange stepped(const Bucket& bucket) const { return intersection(stepped(layout.groups[bucket.group]), tiles_of(bucket)); }
  bool weights_move(const Group& group) const { return residency[group.id].weights.moves; }
  int weight_slots(const Group& group) const { return group.frozen ? 1 : slots(placement.parameters[group.id]); }
  bool has_gradient(const Group& group) const { return training && !group.frozen && group.held(); }
  /// This rank steps some of it.
  bool has_steps(const Group& group) const { return has_gradient(group) && layout.owns(group); }
  /// And keeps a state for that, as all rules do but plain sgd of f32 and f64 weights.
  bool has_state(const Group& group) const { return has_steps(group) && state_tile_bytes(group) > 0; }
  i64 state_tile_bytes(const Group& group) const { return scheduling.format_of(group).state_tile_bytes(); }
  /// All weights and optimizer state lie on nvme: a dead run's last step is found there.
  bool recoverable() const;
  bool on_gpu() const { return device == Device::Kind::cuda; }
  /// A Step of the group is the GPU's own work; else the CPU's threads update, and what lies on a GPU goes to them and back. `given`: its
  /// gradient comes in a slot. Who runs Steps and who prices them ask here.
  bool steps_on_gpu(u16 group, bool given) const {
    return on_gpu() && placement.steps_on_device(group, given) && !layout.groups[group].by_parameter;
  }
  /// Bytes that a Step of the CPU's threads takes from a GPU's memory and brings there.
  struct LinkBytes {
    i64 to_gpu = 0, from_gpu = 0;
  };
  LinkBytes step_link_bytes(const Instruction& step) const;
  /// What the CPU reads or writes of this tier goes through the staging ring.
  bool is_staged(Tier tier) const { return tier == Tier::nvme || (on_gpu() && tier == Tier::device); }
  /// Lanes on which what lies on a GPU goes to other ranks or comes from them through host memory.
  std::vector<Lane> passing_lanes() const;
  bool uses(Tier tier) const { return total[static_cast<size_t>(tier)] > 0; }
  /// Bytes one training step moves, from its Programs.
  TierBytes moved_per_step() const;
};

/// What each block of the whole model makes of a micro-batch: they are run on the meta device, one after another.
std::vector<BlockOutput> block_outputs(const PlanRequest& request);

/// Bytes that each block keeps of one micro-batch between forward and backward and that can spill, under the request's policies, by block;
/// whole pages. From a dry run.
std::vector<i64> spillable_bytes(const PlanRequest& request);

/// Whole pages: of the slab that activations and workspaces take under the request's policies and order, and of keys and values.
struct WorkBytes {
  i64 activations = 0, cache = 0;
};
/// For the blocks' attention, of keys and values that rest by this placement.
nn::KeyValueCache::Lies cache_lies(const Placement& placement);
/// From dry runs.
WorkBytes work_bytes(const PlanRequest& request);

/// New positions that passes with a cache may have when the longest has `longest`, ascending: one, some between, and the longest. Others
/// have not been sized.
std::vector<i64> pass_lengths(i64 longest);

/// Generates the Programs and sizes what they need, without checking them: for a search, which sizes dozens of plans and keeps one. What it
/// keeps has to pass check_programs.
Plan size_plan(const PlanRequest& request);
/// Throws Error(bug) if one of the plan's Programs fails its check (proof/check.h).
void check_programs(const Plan& plan);
/// size_plan, then check_programs.
Plan make_plan(const PlanRequest& request);

}  // namespace spillway::parallel
