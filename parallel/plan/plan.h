// The plan of one rank: everything decided before step 1, which is its layout, its placement, its Programs and the exact bytes of every
// tier by use. The bytes of activations come from a dry run of the Programs on the meta device. Plain values; a plan depends on nothing but
// the request.
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

/// Fewest buffers of the staging ring: two chunks are read ahead, one is computed and two are written behind.
constexpr i64 kLeastStagingBuffers = 5;

/// Peaks of activation memory found by dry runs of one model, by a key of what was computed. Plans that compute the same are not run again.
using DryRuns = std::map<std::string, i64>;

struct PlanRequest {
  const nn::Sequential* model = nullptr;
  Layout layout;  // layout of the whole model
  Placement placement;
  Scheduling scheduling;
  i64 micro_batch_size = 1, sequence_length = 1;
  i64 cache_positions = 0;                         // positions of the key/value cache for generating text; 0 or, without training, more.
                                                   // A pass adds at most sequence_length new positions (pass_lengths)
  bool training = true;                            // false: the plan holds weights only
  Device::Kind device = Device::Kind::cpu;         // the device that computes
  nn::Mode without_training = nn::Mode::generate;  // the mode that runs without training: this or evaluate
  /// Uses two Programs: Steps are speculative (overlap backward) while clipping is rare, otherwise deferred (overlap forward).
  bool adaptive_overlap = false;
  bool gpu_to_gpu = false;             // data in GPU memory goes to other ranks' GPUs without passing host memory
  std::vector<u32> stripe_weights{1};  // relative shares of the nvme paths
  i64 staging_buffers = kLeastStagingBuffers;
  std::shared_ptr<DryRuns> dry_runs;  // known peaks of this same model; null: none are remembered
};

/// One line of the memory table: the bytes that one use takes in each tier.
struct PlanRow {
  std::string what;
  std::array<i64, offload::kTiers> bytes{};
};

struct Plan {
  Layout layout;
  Placement placement;
  Scheduling scheduling;
  Residency residency;  // computed from the three members above
  bool training = true;
  Device::Kind device = Device::Kind::cpu;
  i64 micro_batch_size = 1, sequence_length = 1, cache_positions = 0;
  std::vector<BlockOutput> outputs;  // output of each block; empty unless some go to other pipeline ranks
  std::vector<i64> live;             // for each block, if training: most micro-batches whose activations it holds at once
  Program train, forward;
  std::optional<Program> train_when_clipping;  // with adaptive overlap: replaces `train` while clipping is frequent
  i64 logits_bytes = 0;  // when training: logits of a micro-batch that the last block keeps or recomputes; 0: never recomputed
  i64 moving_slab_bytes = 0, spill_slab_bytes = 0, activation_slab_bytes = 0, input_bytes = 0;
  i64 cache_bytes = 0;                                // size of the key/value cache
  i64 tile_sums = 0;                                  // number of sums of squares: one for each tile of the model
  i64 norm_bytes = 0;                                 // host memory when training: the sums, and the numbers that ranks exchange
  i64 sums_bytes = 0;                                 // with a GPU, on either side: the sums, and one loss per micro-batch
  i64 bounce_bytes = 0, bounces = 0;                  // with a GPU: size and number of the buffers for each direction between it and nvme
  bool gpu_to_gpu = false;                            // as requested, if there is a GPU and there are other ranks
  i64 pass_bytes = 0;                                 // each of a lane's two buffers in host memory between the GPU and other ranks
  i64 exchange_bytes = 0;                             // the GPU's one exchange buffer, if GPUs exchange directly
  i64 staging_buffer_bytes = 0, staging_buffers = 0;  // buffers of the staging ring; 0 if nothing is staged
  i64 whole_bytes = 0;                            // host memory for the step direction of the largest parameter that is stepped as a whole
  i64 whole_gpu_bytes = 0;                        // GPU memory for the matrix products of such a step, when the rule steps matrices
  i64 chunk_tiles = 0;                            // tiles in a staging buffer, and in a buffer of the checkpoint queue
  i64 queue_buffer_bytes = 0, queue_buffers = 0;  // buffers of the checkpoint queue, if training
  offload::StoreDescription store;                // describes the data on nvme; the session fills in folders and run id
  std::vector<PlanRow> rows;
  std::array<i64, offload::kTiers> total{};

  /// Copies (generations) of weights and optimizer state that a tier holds: two if a step writes beside what readers see. On nvme there are
  /// always two when training, so that a crash leaves one intact.
  int slots(Tier tier) const { return training && (tier == Tier::nvme || train.overlap == OptimizerOverlap::backward) ? 2 : 1; }
  DType resting_gradient(GroupUse use) const { return residency[use.group].resting_gradient[use.use]; }
  bool gradient_rests(const Group& group, u8 use) const { return residency[group.id].gradient_rests[use]; }
  TileRange held_weights(const Group& group) const { return residency[group.id].weights.held; }
  TileRange held_gradients(const Group& group) const { return residency[group.id].gradients.held; }
  /// Returns the tiles that this rank steps and holds the optimizer state of; for frozen weights, the tiles that it saves.
  TileRange stepped(const Group& group) const { return layout.owns(group) ? residency[group.id].stepped : TileRange(); }
  /// Returns the stepped tiles of one bucket, numbered within its group.
  TileRange stepped(const Bucket& bucket) const { return intersection(stepped(layout.groups[bucket.group]), tiles_of(bucket)); }
  bool weights_move(const Group& group) const { return residency[group.id].weights.moves; }
  int weight_slots(const Group& group) const { return group.frozen ? 1 : slots(placement.parameters[group.id]); }
  bool has_gradient(const Group& group) const { return training && !group.frozen && group.held(); }
  /// Returns true if this rank steps some part of the group.
  bool has_steps(const Group& group) const { return has_gradient(group) && layout.owns(group); }
  /// Returns true if this rank also keeps optimizer state for it. All rules do, except plain SGD with f32 or f64 weights.
  bool has_state(const Group& group) const { return has_steps(group) && state_tile_bytes(group) > 0; }
  i64 state_tile_bytes(const Group& group) const { return scheduling.format_of(group).state_tile_bytes(); }
  /// Returns true if all weights and optimizer state lie on nvme, so that a restart finds the last step of a run that died.
  bool recoverable() const;
  bool on_gpu() const { return device == Device::Kind::cuda; }
  /// Returns true if the GPU itself does the group's Steps. Otherwise the CPU's threads update, and data in GPU memory is copied to them
  /// and back. `given`: the gradient is passed in a slot. Both the executor and the cost model ask this function.
  bool steps_on_gpu(u16 group, bool given) const {
    return on_gpu() && placement.steps_on_device(group, given) && !layout.groups[group].by_parameter;
  }
  /// Bytes that a Step on the CPU's threads copies to and from GPU memory.
  struct LinkBytes {
    i64 to_gpu = 0, from_gpu = 0;
  };
  LinkBytes step_link_bytes(const Instruction& step) const;
  /// Returns true if the CPU reads and writes data of this tier through the staging ring.
  bool is_staged(Tier tier) const { return tier == Tier::nvme || (on_gpu() && tier == Tier::device); }
  /// Returns the lanes on which data in GPU memory passes host memory on its way to or from other ranks.
  std::vector<Lane> passing_lanes() const;
  bool uses(Tier tier) const { return total[static_cast<size_t>(tier)] > 0; }
  /// Returns the bytes that one training step moves, counted from its Programs.
  TierBytes moved_per_step() const;
};

/// Returns the shape and dtype of each block's output for one micro-batch, for the whole model. Runs the blocks in order on the meta
/// device.
std::vector<BlockOutput> block_outputs(const PlanRequest& request);

/// Returns by block the bytes that it saves of one micro-batch between forward and backward and that can be offloaded, under the request's
/// activation policies, rounded up to whole pages. Found by a dry run.
std::vector<i64> spillable_bytes(const PlanRequest& request);

/// Bytes of the slab for activations and workspaces, under the request's policies and order, and of the key/value cache; whole pages.
struct WorkBytes {
  i64 activations = 0, cache = 0;
};
/// Tells the attention of blocks where this placement stores keys and values.
nn::KeyValueCache::Lies cache_lies(const Placement& placement);
/// Finds the bytes by dry runs.
WorkBytes work_bytes(const PlanRequest& request);

/// Returns, ascending, the numbers of new positions that passes with a cache may have if the longest pass has `longest`: one, some lengths
/// between, and the longest. The plan is not sized for other lengths.
std::vector<i64> pass_lengths(i64 longest);

/// Generates the Programs and sizes what they need, without checking them. The planner's search uses it: it sizes dozens of plans and keeps
/// one, and the plan that it keeps must pass check_programs().
Plan size_plan(const PlanRequest& request);
/// Throws Error(bug) if one of the plan's Programs fails its check (proof/check.h).
void check_programs(const Plan& plan);
/// Calls size_plan() and then check_programs().
Plan make_plan(const PlanRequest& request);

}  // namespace spillway::parallel
