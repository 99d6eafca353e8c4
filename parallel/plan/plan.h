// A Plan is everything that one rank decides before step 1. It consists of the layout, the placement, the Programs (lists of instructions)
// and the exact number of bytes that each kind of data takes in each tier. The bytes of activations come from a dry run of the Programs on
// the meta device. Plain values; a plan depends on nothing but the request.
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

/// The least number of buffers in the staging ring, through which optimizer state streams from and to nvme: two buffers are being read,
/// one is computed, and two are being written.
constexpr i64 kLeastStagingBuffers = 5;

/// Optimizer updates that the GPU makes on tiles from elsewhere stream through this number of buffers in its memory: one is filled, one is
/// updated, and one is emptied. A buffer has room for at most kStreamedTiles tiles, which are copied for long enough that the time to begin
/// a copy does not matter.
constexpr i64 kStreamedBuffers = 3, kStreamedTiles = 64;
/// Returns the bytes of one of these buffers for a rank with this layout.
i64 streamed_buffer_bytes(const Layout& layout, const Scheduling& scheduling);

/// Holds the most bytes of memory that computing takes at one time. They depend on the request's activation policies and its order of
/// micro-batches.
struct WorkBytes {
  i64 activations = 0;  // activations and workspaces in the planned slab
  i64 foreign = 0;      // what blocks take from another library beside it (device/foreign_memory.h)
  i64 cache = 0;        // the key/value cache
};

/// Holds the peaks of memory that dry runs of one model have found. The key describes what
/// the dry run computed, so a plan that computes the same needs no new dry run.
using DryRuns = std::map<std::string, WorkBytes>;

struct PlanRequest {
  const nn::Sequential* model = nullptr;
  Layout layout;  // layout of the whole model
  Placement placement;
  Scheduling scheduling;
  i64 micro_batch_size = 1, sequence_length = 1;
  // The key/value cache for generating text has this many positions; 0 means no cache. The number may be above 0 only
  // if the plan does not train. A pass adds at most sequence_length new positions (pass_lengths).
  i64 cache_positions = 0;
  bool training = true;                            // true: the plan trains; false: it only runs forward, so it holds weights only
  Device::Kind device = Device::Kind::cpu;         // the kind of device that computes
  int gpu = 0;                                     // its index among the node's GPUs, if it is one
  nn::Mode without_training = nn::Mode::generate;  // the mode of the forward pass if the plan does not train: generate or evaluate
  /// If true, the plan has two Programs (lists of a step's instructions). While clipping is rare, optimizer updates run speculatively
  /// inside the backward (overlap backward). While clipping is frequent, they are deferred to the next forward (overlap forward).
  bool adaptive_overlap = false;
  bool gpu_to_gpu = false;             // whether data in GPU memory goes directly to other ranks' GPUs, not through host memory
  std::vector<u32> stripe_weights{1};  // relative share of the data that each nvme path receives
  i64 staging_buffers = kLeastStagingBuffers;
  std::shared_ptr<DryRuns> dry_runs;  // peak memory that dry runs of this model have found before; null: no peaks are remembered

  /// Returns the meta device on which dry runs of the model compute.
  Device meta() const { return {Device::Kind::meta, gpu, device}; }
};

/// Describes one line of the memory table: what the memory is used for, and the bytes that this use takes in each tier.
struct PlanRow {
  std::string what;
  std::array<i64, offload::kTiers> bytes{};
};

struct Plan {
  Layout layout;
  Placement placement;
  Scheduling scheduling;
  Residency residency;  // where each group's data is stored; computed from the three members above
  bool training = true;
  Device::Kind device = Device::Kind::cpu;
  i64 micro_batch_size = 1, sequence_length = 1, cache_positions = 0;
  std::vector<BlockOutput> outputs;  // output of each block; empty if this is the only pipeline rank
  std::vector<i64> live;             // if training, for each block: the largest number of micro-batches whose activations it holds at once
  Program train, forward;
  std::optional<Program> train_when_clipping;  // with adaptive overlap: the Program that replaces `train` while clipping is frequent
  // Holds the bytes of a micro-batch's logits when training, or 0 if the last block never recomputes logits.
  i64 logits_bytes = 0;
  i64 moving_slab_bytes = 0, spill_slab_bytes = 0, activation_slab_bytes = 0, input_bytes = 0;
  i64 foreign_bytes = 0;  // device memory that blocks take from another library (PyTorch) while they compute; the plan only reserves it
  i64 cache_bytes = 0;    // size of the key/value cache
  i64 tile_sums = 0;      // number of sums of squares for the gradient norm: one for each tile of the model
  i64 norm_bytes = 0;     // if training: host memory for the sums of squares and for the numbers that ranks exchange
  i64 sums_bytes = 0;     // with a GPU: bytes, in GPU memory and again in host memory, for the sums of squares and one loss per micro-batch
  i64 bounce_bytes = 0, bounces = 0;  // with a GPU: size of a buffer between it and nvme, and number of such buffers for each direction
  bool gpu_to_gpu = false;            // true if direct exchange was requested, the device is a GPU and there are other ranks
  i64 pass_bytes = 0;                 // size of a buffer in host memory between the GPU and other ranks; each thread that exchanges has two
  i64 exchange_bytes = 0;             // size of the one buffer in GPU memory for exchanges, if GPUs exchange data directly
  i64 staging_buffer_bytes = 0, staging_buffers = 0;  // buffers of the staging ring; 0 if nothing is staged
  i64 whole_bytes = 0;      // host memory for the update of the largest parameter that is updated as a whole (Muon, Adafactor)
  i64 whole_gpu_bytes = 0;  // GPU memory for the matrix products of the largest such update, if the rule updates matrices as a whole (Muon)
  i64 streamed_bytes = 0;   // size of each of the kStreamedBuffers in GPU memory, if the GPU updates tiles that rest elsewhere
  i64 chunk_tiles = 0;      // number of tiles in one buffer of the staging ring or of the checkpoint queue
  i64 queue_buffer_bytes = 0, queue_buffers = 0;  // size and number of the checkpoint queue's buffers, if training
  offload::StoreDescription store;                // description of the files on nvme; the caller fills in their folders and the run id
  std::vector<PlanRow> rows;
  std::array<i64, offload::kTiers> total{};

  /// Returns how many copies (generations) of weights and optimizer state a tier holds. There are two if a step writes the new
  /// generation while the old one is still read. On nvme there are always two when training, so that a crash leaves one intact.
  int slots(Tier tier) const { return training && (tier == Tier::nvme || train.overlap == OptimizerOverlap::backward) ? 2 : 1; }
  DType resting_gradient(GroupUse use) const { return residency[use.group].resting_gradient[use.use]; }
  bool gradient_rests(const Group& group, u8 use) const { return residency[group.id].gradient_rests[use]; }
  TileRange held_weights(const Group& group) const { return residency[group.id].weights.held; }
  TileRange held_gradients(const Group& group) const { return residency[group.id].gradients.held; }
  /// Returns the tiles that this rank updates and whose optimizer state it holds. For frozen weights, which are not updated, the result is
  /// the range of tiles that the rank saves.
  TileRange stepped(const Group& group) const { return layout.owns(group) ? residency[group.id].stepped : TileRange(); }
  /// Returns the tiles of one bucket that this rank updates, numbered within the bucket's group.
  TileRange stepped(const Bucket& bucket) const { return intersection(stepped(layout.groups[bucket.group]), tiles_of(bucket)); }
  bool weights_move(const Group& group) const { return residency[group.id].weights.moves; }
  int weight_slots(const Group& group) const { return group.frozen ? 1 : slots(placement.parameters[group.id]); }
  bool has_gradient(const Group& group) const { return training && !group.frozen && group.held(); }
  /// Returns true if this rank updates some part of the group.
  bool has_steps(const Group& group) const { return has_gradient(group) && layout.owns(group); }
  /// Returns true if this rank also keeps optimizer state for the group. All optimizer rules need state, except plain SGD with f32 or f64
  /// weights.
  bool has_state(const Group& group) const { return has_steps(group) && state_tile_bytes(group) > 0; }
  i64 state_tile_bytes(const Group& group) const { return scheduling.format_of(group).state_tile_bytes(); }
  /// Returns true if all weights and all optimizer state lie on nvme. If a run dies, a restart can then continue from its last completed
  /// step.
  bool recoverable() const;
  bool on_gpu() const { return device == Device::Kind::cuda; }
  /// Returns true if the GPU makes the optimizer updates (Steps) of the group where all of their data lies, in its memory. Otherwise,
  /// unless streams_step(), threads of the CPU do them, and data in GPU memory is copied to host memory and back. `given` says that the
  /// update receives the gradient in planned device memory (a slot). The executor and the cost model both ask this function, so they agree.
  bool steps_on_gpu(u16 group, bool given) const {
    return on_gpu() && placement.steps_on_device(group, given) && !layout.groups[group].by_parameter;
  }
  /// Returns true if the GPU makes the optimizer updates of the group although some of their data rests in host memory or on nvme. Tiles of
  /// this data are copied to the GPU, updated there, and copied back, while other tiles are on their way.
  bool streams_step(u16 group, bool given) const {
    return on_gpu() && scheduling.streams_steps && !placement.steps_on_device(group, given) && !layout.groups[group].by_parameter;
  }
  /// Counts the bytes that an optimizer update copies between GPU memory and host memory. An update on the CPU copies what lies in GPU
  /// memory; one that streams copies everything else.
  struct LinkBytes {
    i64 to_gpu = 0, from_gpu = 0;
  };
  LinkBytes step_link_bytes(const Instruction& step) const;
  /// Returns true if the CPU reads and writes data of this tier through the staging ring.
  bool is_staged(Tier tier) const { return tier == Tier::nvme || (on_gpu() && tier == Tier::device); }
  /// Returns the lanes (sequences of instructions of one kind) whose data passes through host memory between the GPU and other ranks.
  std::vector<Lane> passing_lanes() const;
  /// Returns the part of `total` that this program allocates itself.
  std::array<i64, offload::kTiers> own_bytes() const { return {total[0] - foreign_bytes, total[1], total[2]}; }
  bool uses(Tier tier) const { return total[static_cast<size_t>(tier)] > 0; }
  /// Returns the bytes that one training step moves, counted from its instructions.
  TierBytes moved_per_step() const;
};

/// Returns the shape and dtype of each block's output for one micro-batch, for the whole model. Runs the blocks in order on the meta
/// device.
std::vector<BlockOutput> block_outputs(const PlanRequest& request);

/// Returns, for each block, the bytes that one micro-batch keeps between forward and backward and that can be offloaded, rounded up to
/// whole pages. The request's activation policies apply. The bytes are found by a dry run.
std::vector<i64> spillable_bytes(const PlanRequest& request);

/// Tells the attention of the blocks whether keys and values are stored on the device or elsewhere.
nn::KeyValueCache::Lies cache_lies(const Placement& placement);
/// Finds the bytes of activations, of other libraries and of the key/value cache by dry runs.
WorkBytes work_bytes(const PlanRequest& request);

/// Returns, in ascending order, the numbers of new positions that a pass with a key/value cache may have, if the longest pass has
/// `longest`: one, some numbers between, and the longest. The plan is sized for these numbers only.
std::vector<i64> pass_lengths(i64 longest);

/// Generates the plan's Programs (lists of instructions) and sizes the memory that they need, but does not check them. The planner's
/// search calls this for dozens of plans and keeps one of them; that plan must then pass check_programs().
Plan size_plan(const PlanRequest& request);
/// Throws Error(bug) if one of the plan's Programs (lists of instructions) breaks a rule of check() (proof/check.h).
void check_programs(const Plan& plan);
/// Calls size_plan() and then check_programs().
Plan make_plan(const PlanRequest& request);

}  // namespace spillway::parallel
