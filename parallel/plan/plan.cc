#include "parallel/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/units.h"
#include "device/arena.h"
#include "nn/key_value_cache.h"
#include "optim/matrices/orthogonalize.h"
#include "optim/rules/adafactor.h"
#include "parallel/blocks/accumulator.h"
#include "parallel/blocks/block_runner.h"
#include "parallel/plan/dry_runs.h"
#include "parallel/plan/layout_hash.h"
#include "parallel/plan/state_text.h"
#include "parallel/program/computing_order.h"
#include "parallel/proof/check.h"

namespace spillway::parallel {
namespace {

constexpr i64 kChunkTiles = 16;  // tiles in a buffer of the staging ring: 1 MiB of fp32 weights
constexpr u16 kStayingBeforeDeferred = 2;
constexpr i64 kBounceBytes = 4 * kMiB, kBounces = 8;  // buffers between GPU and nvme: half of them can keep several drives busy
constexpr i64 kPassBytes = 4 * kMiB;
constexpr i64 kExchangeBytes = 32 * kMiB;  // exchange buffer: some MiB per rank, which take longer to send than an exchange takes to start
constexpr i64 kQueueBuffers = 4;           // checkpoint queue: one buffer is being filled, two are waiting, one is being written

bool spills(const Placement& placement) {
  return std::any_of(placement.activations.begin(), placement.activations.end(), [](const auto& p) { return p.tier != Tier::device; });
}

void add_row(Plan& plan, std::string what, std::array<i64, offload::kTiers> bytes) {
  for (size_t t = 0; t < bytes.size(); ++t) plan.total[t] += bytes[t];
  if (*std::max_element(bytes.begin(), bytes.end()) > 0) plan.rows.push_back({std::move(what), bytes});
}

std::array<i64, offload::kTiers> only_in(Tier tier, i64 bytes) {
  std::array<i64, offload::kTiers> all{};
  all[static_cast<size_t>(tier)] = bytes;
  return all;
}

void add_resident_rows(Plan& plan) {
  std::array<i64, offload::kTiers> weights{}, gradients{}, state{};
  const optim::StateFormat& format = plan.scheduling.format;
  for (const Group& g : plan.layout.groups) {
    const auto at = [&](const std::vector<Tier>& tiers) { return static_cast<size_t>(tiers[g.id]); };
    weights[at(plan.placement.parameters)] += plan.held_weights(g).count() * format.weight_tile_bytes() * plan.weight_slots(g);
    for (u8 use = 0; plan.has_gradient(g) && use < g.uses.size(); ++use) {
      const i64 bytes = plan.held_gradients(g).count() * kTileElems * size_of(plan.resting_gradient({g.id, use}));
      if (plan.gradient_rests(g, use)) gradients[at(plan.placement.gradients)] += bytes;
    }
    if (!plan.has_state(g)) continue;
    state[at(plan.placement.optimizer)] += plan.stepped(g).count() * plan.state_tile_bytes(g) * plan.slots(plan.placement.optimizer[g.id]);
  }
  add_row(plan, "weights", weights);
  add_row(plan, "gradients", gradients);
  add_row(plan, state_text(format), state);
}

void add_spilled_rows(Plan& plan) {
  std::array<i64, offload::kTiers> bytes{0, plan.spill_slab_bytes, 0};
  for (size_t b = 0; plan.training && b < plan.scheduling.spilled_bytes.size(); ++b) {
    const Tier tier = plan.placement.activations[b].tier;
    if (plan.scheduling.activations_travel(tier)) bytes[static_cast<size_t>(tier)] += plan.live[b] * plan.scheduling.spilled_bytes[b];
  }
  add_row(plan, "activations spilled", bytes);
}

void size_chunks(Plan& plan) {
  i64 tiles = 0;
  for (const Bucket& b : plan.layout.buckets) tiles = std::max(tiles, b.tiles);
  plan.chunk_tiles = std::min(kChunkTiles, tiles);
}

// Sizes the memory for the optimizer update of a parameter that is updated as a whole. Such updates run one at a time, so the largest
// parameter decides.
void size_whole(Plan& plan) {
  const DType dtype = wide_dtype(plan.scheduling.format.weight);
  const bool matrices = is_of_matrices(plan.scheduling.format.rule);
  for (const Bucket& b : plan.layout.buckets) {
    if (!plan.layout.groups[b.group].by_parameter || plan.stepped(b).count() == 0) continue;
    const Segment& whole = plan.layout.groups[b.group].segment_of(b);
    const auto& [count, rows, columns] = whole.matrices;
    i64 bytes = round_up(whole.elems, kTileElems) * size_of(dtype);
    if (!matrices) bytes = optim::adafactor_bytes(whole.matrices, whole.elems, dtype);
    if (matrices && !plan.on_gpu()) bytes = optim::orthogonalize_bytes(rows, columns, dtype);
    if (matrices && plan.on_gpu())
      plan.whole_gpu_bytes = std::max(plan.whole_gpu_bytes, optim::orthogonalize_bytes(rows, columns, dtype, Device::Kind::cuda));
    plan.whole_bytes = std::max(plan.whole_bytes, bytes);
  }
  plan.whole_bytes = round_up(plan.whole_bytes, kPage), plan.whole_gpu_bytes = round_up(plan.whole_gpu_bytes, kPage);
  add_row(plan, matrices ? "matrix under way" : "parameter under way", {plan.whole_gpu_bytes, plan.whole_bytes, 0});
}

void size_queue(Plan& plan) {
  const optim::StateFormat& format = plan.scheduling.format;
  plan.queue_buffers = kQueueBuffers;
  i64 state_bytes = format.state_tile_bytes();
  for (const Group& g : plan.layout.groups) state_bytes = std::max(state_bytes, plan.state_tile_bytes(g));
  plan.queue_buffer_bytes = plan.chunk_tiles * (format.weight_tile_bytes() + state_bytes);
  add_row(plan, "checkpoint queue", {0, plan.queue_buffers * plan.queue_buffer_bytes, 0});
}

// Returns how many bytes of one tile of the group pass through the staging ring in an optimizer update or a scan.
i64 staged_tile_bytes(const Plan& plan, const Group& g) {
  if (!g.held()) return 0;
  const optim::StateFormat& format = plan.scheduling.format;
  const auto staged = [&](const std::vector<Tier>& tiers, i64 bytes) { return plan.is_staged(tiers[g.id]) ? bytes : 0; };
  const i64 weights = staged(plan.placement.parameters, format.weight_tile_bytes());
  if (!plan.has_steps(g)) return weights;
  return weights + staged(plan.placement.optimizer, plan.state_tile_bytes(g)) +
         staged(plan.placement.gradients, kTileElems * size_of(plan.resting_gradient({g.id, 0})));
}

void size_staging(Plan& plan, const PlanRequest& r) {
  if (!plan.uses(Tier::nvme) && !plan.on_gpu()) return;
  i64 tile_bytes = 0;
  for (const Group& g : plan.layout.groups) tile_bytes = std::max(tile_bytes, staged_tile_bytes(plan, g));
  if (tile_bytes == 0) return;  // nothing is staged: only activations lie on nvme
  plan.staging_buffers = r.staging_buffers;
  plan.staging_buffer_bytes = plan.chunk_tiles * tile_bytes;
  add_row(plan, "staging ring", {0, plan.staging_buffers * plan.staging_buffer_bytes, 0});
}

// Sizes the GPU memory through which optimizer updates stream if the GPU makes them and some of the data rests elsewhere.
void size_streamed(Plan& plan) {
  const auto streams = [&](const Group& g) { return plan.has_steps(g) && plan.streams_step(g.id, !plan.gradient_rests(g, 0)); };
  if (!plan.training || std::ranges::none_of(plan.layout.groups, streams)) return;
  plan.streamed_bytes = streamed_buffer_bytes(plan.layout, plan.scheduling);
  add_row(plan, "optimizer updates on the GPU", {kStreamedBuffers * plan.streamed_bytes, 0, 0});
}

void size_store(Plan& plan, const PlanRequest& r) {
  const auto nvme = static_cast<size_t>(Tier::nvme);
  if (plan.total[nvme] == 0) return;
  for (const u32 weight : r.stripe_weights) plan.store.paths.push_back({{}, weight});
  plan.store.data_bytes = plan.total[nvme];
  i64 persistent_bytes = 0;
  const auto add = [&](Tier tier, i64 tiles, i64 tile_bytes) {
    if (tier != Tier::nvme) return;
    plan.store.persistent_tiles += tiles;
    persistent_bytes += tiles * tile_bytes;
  };
  const optim::StateFormat& format = plan.scheduling.format;
  for (const Group& g : plan.layout.groups) {
    const Tier weights = plan.placement.parameters[g.id], state = plan.placement.optimizer[g.id];
    add(weights, plan.held_weights(g).count(), format.weight_tile_bytes() * plan.weight_slots(g));
    if (plan.has_state(g)) add(state, plan.stepped(g).count(), plan.state_tile_bytes(g) * plan.slots(state));
  }
  plan.store.passing_bytes = plan.store.data_bytes - persistent_bytes;
  plan.store.layout_hash = layout_hash(plan);
  add_row(plan, "checksums and headers", {0, 0, store_bytes(plan.store) - plan.store.data_bytes});
}

// Sizes the buffers for data between ranks. A buffer has room for at least one tile of each data-parallel rank.
void size_passes(Plan& plan) {
  const int ranks = plan.scheduling.sharding.ranks;
  const optim::StateFormat& format = plan.scheduling.format;
  const i64 tile_bytes = std::max(format.weight_tile_bytes(), format.gradient_tile_bytes());
  if (plan.gpu_to_gpu && ranks > 1) {
    plan.exchange_bytes = std::max(kExchangeBytes, round_up(ranks * tile_bytes, kPage));
    add_row(plan, "between GPUs", {plan.exchange_bytes, 0, 0});
  }
  const i64 lanes = std::ssize(plan.passing_lanes());
  if (lanes == 0) return;
  plan.pass_bytes = std::max(kPassBytes, ranks * tile_bytes);
  add_row(plan, "between the GPU and other ranks", {0, 2 * lanes * plan.pass_bytes, 0});
}

// Sizes the memory for the sums of squares, one per tile. Host memory holds them, and also the sums of other ranks, each rank's behind its
// loss. A GPU has its own buffer for the sums and the micro-batches' losses that it computes; host memory holds a copy of this buffer.
void size_norm(Plan& plan) {
  constexpr i64 kEach = sizeof(double);
  plan.tile_sums = std::accumulate(plan.layout.model_tiles.begin(), plan.layout.model_tiles.end(), i64{0});
  const i64 data_ranks = plan.scheduling.sharding.ranks, sums = plan.tile_sums;
  const i64 told = data_ranks > 1 || plan.scheduling.pipeline.ranks > 1 ? data_ranks + sums : 0;
  if (plan.training) plan.norm_bytes = round_up((sums + told) * kEach, kPage);
  if (plan.on_gpu()) plan.sums_bytes = round_up((sums + plan.scheduling.micro_batches) * kEach, kPage);
  add_row(plan, "norm", {plan.sums_bytes, plan.norm_bytes + plan.sums_bytes, 0});
}

// Sizes what only a GPU needs: buffers in host memory between the GPU and nvme, and buffers between ranks.
void size_gpu(Plan& plan) {
  if (!plan.on_gpu()) return;
  size_passes(plan);
  const auto on_nvme = [&](const std::vector<Tier>& tiers) { return std::ranges::find(tiers, Tier::nvme) != tiers.end(); };
  const bool activations = std::ranges::any_of(plan.placement.activations, [](const auto& p) { return p.tier == Tier::nvme; });
  if (!on_nvme(plan.placement.parameters) && !(plan.training && (activations || on_nvme(plan.placement.gradients)))) return;
  plan.bounce_bytes = kBounceBytes, plan.bounces = kBounces;
  add_row(plan, "between nvme and the GPU", {0, 2 * plan.bounces * plan.bounce_bytes, 0});
}

void size_activations(Plan& plan, const Request& r) {
  const WorkBytes work = dry_runs(r, plan.train.head, plan.forward.head);
  plan.activation_slab_bytes = work.activations;
  plan.foreign_bytes = work.foreign;
  plan.cache_bytes = work.cache;
  const i64 batches = r.training ? r.scheduling.micro_batches : 1;
  Arena memory;
  const Stream stream{r.meta(), nullptr, &memory};
  const StreamScope scope(stream);
  if (r.training && r.layout.has_last_block())
    plan.logits_bytes = r.model->blocks.back()->logits_again_bytes(r.micro_batch_size * r.sequence_length);
  MicroBatch batch = nn::empty_batch(*r.model, r.micro_batch_size, r.sequence_length);
  for (const Tensor* t : batch.tensors()) plan.input_bytes += t->defined() ? batches * round_up(t->bytes(), kPage) : 0;
  if (r.cache_positions > 0) plan.input_bytes += round_up(r.micro_batch_size * r.cache_positions * size_of(DType::int32), kPage);
}

// Chooses how many blocks' gradients stay in device memory until their optimizer updates: as many as fit into the memory that is needed
// anyway. Memory whose gradient waits for a deferred update cannot take fetched data yet. So if updates are deferred, the gradients of at
// most two blocks stay; the first fetched weights have to wait for the updates of these two blocks in any case.
void choose_staying_blocks(PlanRequest& r) {
  const auto& tiers = r.placement.gradients;
  if (std::find(tiers.begin(), tiers.end(), Tier::nvme) == tiers.end()) return;
  const auto slab_bytes = [&](i64 blocks, i64 micro_batches) {
    Scheduling scheduling = r.scheduling;
    scheduling.overlap = OptimizerOverlap::none;
    scheduling.staying_blocks = static_cast<u16>(blocks);
    scheduling.micro_batches = micro_batches;
    return generate_training(r.layout, r.placement, scheduling).moving_slab_bytes();
  };
  const i64 trained = std::ssize(r.layout.blocks) - r.layout.first_trained_block;
  const i64 all = r.scheduling.micro_batches;
  // Two micro-batches suffice for sizing, because those between the first and the last need the same memory.
  const i64 few = r.scheduling.pipeline.table ? all : std::min<i64>(2, all);
  const i64 least_bytes = slab_bytes(1, few);
  i64 most = r.scheduling.defers() ? std::min<i64>(trained, kStayingBeforeDeferred) : trained, blocks = 1;
  while (blocks < most) {  // the binary search is valid because slab_bytes() does not decrease as blocks are added
    const i64 middle = (blocks + most + 1) / 2;
    if (slab_bytes(middle, few) <= least_bytes) {
      blocks = middle;
    } else {
      most = middle - 1;
    }
  }
  const bool holds = blocks == 1 || all == few || slab_bytes(blocks, all) <= slab_bytes(1, all);
  r.scheduling.staying_blocks = holds ? static_cast<u16>(blocks) : u16{1};
}

// Makes a step's instruction lists, or for an adaptive overlap two sets of them that share the order of micro-batches and the memory plan.
void make_training(Plan& plan, const PlanRequest& r) {
  plan.train = generate_training(r.layout, r.placement, r.scheduling);
  if (!r.adaptive_overlap) return;
  Scheduling scheduling = r.scheduling;
  scheduling.overlap = OptimizerOverlap::forward;
  plan.train_when_clipping = generate_training(r.layout, r.placement, scheduling);
}

// Returns the request narrowed to its own pipeline rank, with the sizes that the model determines filled in.
Request resolved(const PlanRequest& request) {
  Request r{request, {}};
  if (r.adaptive_overlap) r.scheduling.overlap = OptimizerOverlap::backward;
  const Stages stages = make_stages(r.layout, r.scheduling);
  if (r.scheduling.pipeline.ranks > 1) r.outputs = block_outputs(r);
  for (const BlockOutput& output : r.outputs) r.scheduling.output_bytes.push_back(output.bytes());
  if (r.training && spills(r.placement)) r.scheduling.spilled_bytes = spillable_bytes(r);
  r.layout = restricted(std::move(r.layout), stages.rank_of, r.scheduling.pipeline.rank);
  return r;
}

std::vector<i64> live_micro_batches(const Request& r) {
  const ComputingOrder order(r.layout, r.scheduling, true);
  std::vector<i64> live;
  for (u16 b = 0; b < r.layout.blocks.size(); ++b) live.push_back(order.live(b));
  return live;
}

}  // namespace

bool Plan::recoverable() const {
  const auto on_nvme = [&](const Group& g) {
    return placement.parameters[g.id] == Tier::nvme && (!has_state(g) || placement.optimizer[g.id] == Tier::nvme);
  };
  return training && std::all_of(layout.groups.begin(), layout.groups.end(), on_nvme);
}

i64 streamed_buffer_bytes(const Layout& layout, const Scheduling& scheduling) {
  const optim::StateFormat& format = scheduling.format;
  i64 bytes = 0;
  for (const Bucket& b : layout.buckets) {
    const Group& group = layout.groups[b.group];
    if (group.frozen || group.by_parameter || !layout.owns(group)) continue;
    const i64 tile_bytes = format.gradient_tile_bytes() + format.weight_tile_bytes() + scheduling.format_of(group).state_tile_bytes();
    bytes = std::max(bytes, std::min(kStreamedTiles, b.tiles) * tile_bytes);
  }
  return bytes;
}

std::vector<BlockOutput> block_outputs(const PlanRequest& r) {
  Arena memory;
  const Stream stream{r.meta(), nullptr, &memory};
  const StreamScope scope(stream);
  const std::vector<MicroBatch> batches{nn::empty_batch(*r.model, r.micro_batch_size, r.sequence_length)};
  BlockRunner runner(*r.model);
  runner.begin(batches, nn::Mode::evaluate, {}, 1);
  std::vector<BlockOutput> outputs;
  for (u16 b = 0; b < r.layout.blocks.size(); ++b) {
    runner.forward({.op = Op::Forward, .block = b, .micro_batch = 0});
    outputs.push_back({runner.output(0).shape(), runner.output(0).dtype()});
  }
  return outputs;
}

std::vector<i64> spillable_bytes(const PlanRequest& r) {
  Arena memory;
  const Stream stream{r.meta(), nullptr, &memory};
  const StreamScope scope(stream);
  const std::vector<MicroBatch> batches{nn::empty_batch(*r.model, r.micro_batch_size, r.sequence_length)};
  BlockRunner runner(*r.model);
  runner.begin(batches, nn::Mode::train, {}, 1);
  const auto blocks = static_cast<u16>(r.layout.blocks.size());
  for (u16 b = 0; b < blocks; ++b)
    runner.forward({.op = Op::Forward, .block = b, .micro_batch = 0, .recompute = r.placement.activations[b].recompute});
  std::vector<i64> bytes;
  for (u16 b = 0; b < blocks; ++b) {
    const i64 kept = runner.spillable_bytes(b, 0);
    bytes.push_back(round_up(kept, kPage * std::max<i64>(1, ceil_div(kept, kActivationTileBytes))));  // in tiles of whole pages
  }
  return bytes;
}

WorkBytes work_bytes(const PlanRequest& request) {
  const Request r = resolved(request);
  const List train = r.training ? generate_training(r.layout, r.placement, r.scheduling).head : List();
  return dry_runs(r, train, generate_forward(r.layout, r.placement, r.scheduling).head);
}

Plan size_plan(const PlanRequest& request) {
  require(request.cache_positions == 0 || (!request.training && request.cache_positions >= request.sequence_length),
          "[plan] expected a key/value cache only if the plan does not train, and at least as long as a pass");
  require(request.placement.cache != Tier::nvme, "[plan] expected the key/value cache in memory, got nvme");
  require(request.scheduling.copy_engines == (request.device == Device::Kind::cuda),
          "[plan] expected copy_engines to be set with a GPU and not with a CPU");
  require(!request.scheduling.sums_each() || request.scheduling.sharding.stage >= 2,
          "[plan] expected ZeRO stage 2 or 3 with --gradient-reduction micro-batch");
  require(!request.training || request.model->router_loss_experts == 0 || request.scheduling.pipeline.ranks == 1,
          "[plan] expected a single pipeline rank when training with a router loss, which needs the experts of all layers");
  Request r = resolved(request);
  if (r.training) choose_staying_blocks(r);
  Plan plan;
  plan.layout = r.layout;
  plan.outputs = r.outputs;
  if (r.training) plan.live = live_micro_batches(r);
  plan.placement = r.placement;
  plan.scheduling = r.scheduling;
  plan.residency = resolve(r.layout, r.placement, r.scheduling);
  plan.training = r.training;
  plan.device = r.device;
  plan.gpu_to_gpu = r.gpu_to_gpu && plan.on_gpu() && (r.scheduling.sharding.ranks > 1 || r.scheduling.pipeline.ranks > 1);
  plan.micro_batch_size = r.micro_batch_size;
  plan.sequence_length = r.sequence_length;
  plan.cache_positions = r.cache_positions;
  plan.forward = generate_forward(r.layout, r.placement, r.scheduling);
  if (r.training) make_training(plan, r);
  const i64 clipping_bytes = plan.train_when_clipping ? plan.train_when_clipping->moving_slab_bytes() : 0;
  plan.moving_slab_bytes = round_up(std::max({plan.train.moving_slab_bytes(), plan.forward.moving_slab_bytes(), clipping_bytes}), kPage);
  plan.spill_slab_bytes = round_up(plan.train.spill_slab_bytes(), kPage);
  size_activations(plan, r);
  add_resident_rows(plan);
  add_row(plan, "data in motion", {plan.moving_slab_bytes, 0, 0});
  add_row(plan, "activations", {plan.activation_slab_bytes, 0, 0});
  add_row(plan, "PyTorch", {plan.foreign_bytes, 0, 0});
  add_row(plan, "key/value cache", only_in(plan.placement.cache, plan.cache_bytes));
  add_spilled_rows(plan);
  constexpr const char* kInputs[] = {"inputs", "tokens", "images"};
  add_row(plan, kInputs[r.model->reads_tokens() + 2 * r.model->reads_images()],
          {plan.input_bytes, plan.on_gpu() ? plan.input_bytes : 0, 0});
  size_norm(plan);
  size_gpu(plan);
  size_chunks(plan);
  size_staging(plan, r);
  size_streamed(plan);
  if (r.training) {
    size_whole(plan);
    size_queue(plan);
  }
  size_store(plan, r);
  return plan;
}

// Checks that both Programs of an adaptive overlap leave the gradients of waiting updates at the same places, so that either can make
// these updates.
void check_alike(const Program& speculating, const Program& deferring) {
  const auto gradients_of = [](const List& settle) {
    std::map<u16, Slot> slots;
    for (const Instruction& i : settle) {
      if (i.op == Op::Step) slots[i.group] = i.in;
    }
    return slots;
  };
  if (gradients_of(speculating.clipped_settle) != gradients_of(deferring.settle))
    throw Error(ErrorCode::bug, "[check] expected both Programs of an adaptive overlap to leave gradients in the same slots");
}

void check_programs(const Plan& plan) {
  check(plan.forward, plan.layout, plan.placement, plan.scheduling);
  if (!plan.training) return;
  check(plan.train, plan.layout, plan.placement, plan.scheduling);
  if (!plan.train_when_clipping) return;
  check(*plan.train_when_clipping, plan.layout, plan.placement, plan.scheduling);
  check_alike(plan.train, *plan.train_when_clipping);
}

Plan make_plan(const PlanRequest& request) {
  Plan plan = size_plan(request);
  check_programs(plan);
  return plan;
}

}  // namespace spillway::parallel
