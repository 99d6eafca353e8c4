#include "trainer/plan/cost_model.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "optim/matrices/orthogonalize.h"
#include "trainer/plan/phases.h"
#include "trainer/plan/shares.h"

namespace spillway::trainer {
namespace {

using parallel::Instruction;
using parallel::Op;
using parallel::Tier;

double at(const std::array<i64, offload::kTiers>& bytes, Tier tier) { return static_cast<double>(bytes[static_cast<size_t>(tier)]); }

double tokens_of(const parallel::Plan& plan) { return static_cast<double>(plan.micro_batch_size * plan.sequence_length); }

class Costing {
 public:
  /// `beside` means that the optimizer's updates run at the same time as computing. The optimizer then has one thread, and all other
  /// threads compute.
  Costing(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates, bool beside)
      : plan_(plan), rates_(rates), beside_(beside) {
    for (u16 b = 0; b < plan.layout.blocks.size(); ++b)
      blocks_.push_back(rates.block(b, block_flops(plan.layout, model, b, tokens_of(plan))));
  }

  parallel::Work operator()(const Instruction& i) const {
    const double cores = plan_.on_gpu() ? 1 : rates_.machine.cores;
    switch (i.op) {
      case Op::Forward:
        return {.cpu_s = blocks_[i.block].forward + copy_s(i), .cores = cores};
      case Op::Backward:
      case Op::BackwardInput:
      case Op::BackwardWeight:
        return {.cpu_s = backward_s(i) + copy_s(i), .cores = cores};
      case Op::Step:
        return step(i);
      case Op::Reduce:
        return {.cpu_s = elems(i) * (plan_.on_gpu() ? rates_.unit.gpu_norm_s : rates_.unit.norm_s) + copy_s(i), .cores = cores};
      case Op::Accumulate:
      case Op::AddTied:
        return {.cpu_s = 3 * gradient_bytes(i) * (plan_.on_gpu() ? rates_.unit.gpu_sweep_s : rates_.unit.sweep_s), .cores = cores};
      case Op::Gather:
        return passing({.cpu_s = gather_s(i)}, whole(i), whole(i) / ranks());
      case Op::Exchange:
        if (plan_.scheduling.sharding.splits_state()) return passing({.cpu_s = sum_s(i)}, whole(i) / ranks(), whole(i));
        return passing({.cpu_s = sum_s(i) + gather_s(i)}, whole(i), whole(i));
      default:
        if (plan_.on_gpu()) return moved_beside_gpu(i);
        return {.cpu_s = copy_s(i) + checksum_s(i) + message_s(i),
                .cores = i.lane == parallel::Lane::compute ? cores : 1,
                .read_s = read_s(i),
                .write_s = write_s(i),
                .in_turn = true};
    }
  }

 private:
  double backward_s(const Instruction& i) const {
    const BlockSeconds& block = blocks_[i.block];
    const double whole_s = i.first ? block.backward : block.backward_more,
                 again_s = (i.recompute ? block.forward : 0) + (makes_logits_again(i) ? block.forward : 0);
    if (i.op == Op::BackwardInput) return again_s + block.backward_input;
    return again_s + (i.op == Op::BackwardWeight ? std::max(0.0, whole_s - block.backward_input) : whole_s);
  }
  // Returns whether the backward computes the logits again. Doing so costs about as much as a
  // forward of the last block, nearly all of which is the matrix product that makes the logits.
  bool makes_logits_again(const Instruction& i) const {
    return plan_.logits_bytes > 0 && i.block + 1u == plan_.layout.blocks.size() && !i.keep_logits;
  }
  // Returns the number of elements in the tiles (pieces of a parameter group) that the instruction names. With several ranks these tiles
  // are this rank's part.
  static double elems(const Instruction& i) { return static_cast<double>(i.tiles.count() * parallel::kTileElems); }
  double gradient_bytes(const Instruction& i) const { return elems(i) * static_cast<double>(size_of(plan_.scheduling.format.gradient)); }
  double copy_s(const Instruction& i) const {
    return (at(i.read_bytes, Tier::host) + at(i.written_bytes, Tier::host)) * rates_.unit.copy_s;
  }
  double checksum_s(const Instruction& i) const {
    return (at(i.read_bytes, Tier::nvme) + at(i.written_bytes, Tier::nvme)) * rates_.unit.checksum_s;
  }
  double ranks() const { return plan_.scheduling.sharding.ranks; }
  static double whole(const Instruction& i) { return static_cast<double>(i.exchanged_bytes); }
  double gather_s(const Instruction& i) const { return ranks() * whole(i) / rates_.all_gather_bytes_per_s; }
  double sum_s(const Instruction& i) const { return (ranks() + 1) * whole(i) / rates_.reduce_scatter_bytes_per_s; }
  // Returns the time of a message. One rank writes a message and another reads it, so its bytes count twice, at the rate of an all-gather.
  double message_s(const Instruction& i) const { return 2 * static_cast<double>(i.sent_bytes) / rates_.all_gather_bytes_per_s; }
  double read_s(const Instruction& i) const { return at(i.read_bytes, Tier::nvme) / rates_.disk_read_bytes_per_s; }
  double write_s(const Instruction& i) const { return at(i.written_bytes, Tier::nvme) / rates_.disk_write_bytes_per_s; }

  // Returns the work of an optimizer update. State on nvme streams through small host buffers and is updated in the CPU's cache. State in
  // memory is updated at the memory's speed.
  parallel::Work step(const Instruction& i) const {
    if (plan_.on_gpu()) return step_beside_gpu(i);
    const double cores = beside_ ? 1 : rates_.machine.cores;
    const bool on_disk = plan_.placement.optimizer[i.group] == Tier::nvme;
    const double alone_s = (elems(i) * rates_.unit.tile_s + checksum_s(i)) / cores + direction_s(i) * rates_.machine.cores / cores;
    const double memory_s = on_disk ? 0 : elems(i) * rates_.unit.update_s;
    return {.cpu_s = std::max(alone_s, memory_s), .cores = cores, .read_s = read_s(i), .write_s = write_s(i)};
  }

  // Returns the time to orthogonalize a matrix that Muon updates as a whole, on all cores or on the GPU. Returns 0 for other parameters.
  double direction_s(const Instruction& i) const {
    const parallel::Group& group = plan_.layout.groups[i.group];
    if (!group.by_parameter || !is_of_matrices(plan_.scheduling.format.rule)) return 0;
    const optim::Matrices& matrix = group.segment_of(plan_.layout.buckets[i.bucket]).matrices;
    return optim::orthogonalize_flops(matrix.rows, matrix.columns) / rates_.wide_flops;
  }

  // Returns the work of an optimizer update when a GPU computes. The GPU updates a parameter group that is entirely in its memory. All
  // other groups are updated by the host's threads, which have nothing else to do, or by the GPU while their tiles stream through it; the
  // host's threads then only compute checksums.
  parallel::Work step_beside_gpu(const Instruction& i) const {
    if (plan_.steps_on_gpu(i.group, i.in.bytes > 0)) return {.cpu_s = elems(i) * rates_.unit.gpu_update_s};
    const bool on_disk = plan_.placement.optimizer[i.group] == Tier::nvme;
    const double alone_s = (elems(i) * rates_.unit.tile_s + checksum_s(i)) / rates_.threads;
    const double memory_s = on_disk ? 0 : elems(i) * rates_.unit.update_s;
    double update_s = std::max(alone_s, memory_s) + direction_s(i);
    const parallel::Plan::LinkBytes link = plan_.step_link_bytes(i);
    if (plan_.streams_step(i.group, i.in.bytes > 0))
      update_s = std::max({elems(i) * rates_.unit.gpu_update_s, checksum_s(i) / rates_.threads,
                           static_cast<double>(link.to_gpu + link.from_gpu) * rates_.host_memory_s});
    return copied({.cpu_s = update_s, .read_s = read_s(i), .write_s = write_s(i)}, static_cast<double>(link.to_gpu),
                  static_cast<double>(link.from_gpu));
  }

  // Adds to `work` the time to copy bytes between host memory and a GPU. Copy engines move these bytes while the GPU computes.
  parallel::Work copied(parallel::Work work, double in_bytes, double out_bytes) const {
    work.to_gpu_s = in_bytes * rates_.unit.copy_s, work.from_gpu_s = out_bytes * rates_.unit.copy_s;
    return work;
  }
  // Adds to `work` the copies between host memory and a GPU of bytes that are exchanged with other ranks.
  // If the GPUs communicate directly, the bytes do not pass through host memory and nothing is added.
  parallel::Work passing(parallel::Work work, double in_bytes, double out_bytes) const {
    return plan_.on_gpu() && !plan_.gpu_to_gpu ? copied(work, in_bytes, out_bytes) : work;
  }

  // Returns the work of a transfer on a GPU. For nvme transfers the disk, the checksum and the link work at the same time.
  parallel::Work moved_beside_gpu(const Instruction& i) const {
    const parallel::Work work{.cpu_s = checksum_s(i) + message_s(i), .read_s = read_s(i), .write_s = write_s(i)};
    const double received = i.op == Op::ReceiveActivation || i.op == Op::ReceiveGradient ? static_cast<double>(i.out.bytes) : 0;
    if (i.op != Op::Fetch && i.op != Op::Evict) return passing(work, received, static_cast<double>(i.sent_bytes));
    return copied(work, at(i.read_bytes, Tier::host) + at(i.read_bytes, Tier::nvme),
                  at(i.written_bytes, Tier::host) + at(i.written_bytes, Tier::nvme));
  }

  const parallel::Plan& plan_;
  const Rates& rates_;
  const bool beside_;
  std::vector<BlockSeconds> blocks_;
};

using Works = std::function<parallel::Work(int rank, const Instruction&)>;
using Simulation = std::function<std::vector<parallel::Timing>(std::span<const parallel::List* const> world, const Works& work)>;

bool is_computing(const Instruction& i, const parallel::Plan& plan) {
  switch (i.op) {
    case Op::Accumulate:
    case Op::AddTied:
    case Op::Reduce:
      return true;
    case Op::Step:
      return plan.on_gpu() && plan.steps_on_gpu(i.group, i.in.bytes > 0);
    default:
      return computes_block(i.op);
  }
}

// Returns the seconds in which at least one instruction computes.
double computing_s(const parallel::Plan& plan, const parallel::List& list, std::span<const parallel::Timing> timings) {
  std::vector<std::pair<double, double>> times;
  for (size_t i = 0; i < list.size(); ++i) {
    if (is_computing(list[i], plan)) times.emplace_back(timings[i].start_us, timings[i].end_us);
  }
  std::sort(times.begin(), times.end());
  double sum_us = 0, until_us = 0;
  for (const auto& [start_us, end_us] : times) {
    sum_us += std::max(0.0, end_us - std::max(start_us, until_us));
    until_us = std::max(until_us, end_us);
  }
  return sum_us / 1e6;
}

// Returns the seconds in which the drive is busy, assuming that a read and a write overlap as long as bytes of both remain.
double least_disk_s(const parallel::Program& program, const StepLists& lists, const Rates& rates) {
  parallel::TierBytes moved = moved_bytes(program.*lists.head);
  moved += moved_bytes(program.*lists.tail);
  return rates.disk_s(at(moved.read, Tier::nvme), at(moved.written, Tier::nvme));
}

// Predicts a step of the plan with index `mine`. `simulation` returns the times of that plan's instructions, given the instruction lists of
// all plans.
StepCost predicted(std::span<const parallel::Plan* const> plans, size_t mine, const StepLists& lists, const nn::Sequential& model,
                   const Rates& rates, const Simulation& simulation) {
  StepCost cost;
  for (const bool in_head : {true, false}) {
    std::vector<Costing> costing;
    std::vector<const parallel::List*> world;
    for (const parallel::Plan* plan : plans) {
      const parallel::Program& program = lists.program(*plan);
      costing.emplace_back(*plan, model, rates, in_head);
      world.push_back(&(program.*(in_head ? lists.head : lists.tail)));
    }
    std::vector<parallel::Timing> timings =
        simulation(world, [&](int rank, const Instruction& i) { return costing[static_cast<size_t>(rank)](i); });
    cost.account += parallel::account(*world[mine], timings);
    cost.computing_s += computing_s(*plans[mine], *world[mine], timings);
    add_phases(cost.phase_ms, *world[mine], timings, in_head ? "head" : "tail");
    (in_head ? cost.head_us : cost.tail_us) = std::move(timings);
  }
  cost.seconds = cost.account.seconds;
  add_lanes(cost.phase_ms, cost.account);
  if (const double disk_s = least_disk_s(lists.program(*plans[mine]), lists, rates); disk_s > 0) cost.phase_ms["disk"] = disk_s * 1e3;
  return cost;
}

// Returns the number of tokens that a machine with these rates can process in `moving_s` seconds.
double tokens_worth(double moving_s, const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates) {
  double seconds = 0;
  for (u16 b = 0; b < plan.layout.blocks.size(); ++b) {
    const BlockSeconds block = rates.block(b, block_flops(plan.layout, model, b, tokens_of(plan)));
    seconds += block.forward + (b < plan.layout.first_trained_block ? 0 : block.backward);
  }
  return moving_s * tokens_of(plan) / seconds;
}

}  // namespace

BlockSeconds Rates::block(size_t index, const BlockFlops& work) const {
  if (!blocks.empty()) return blocks[index];
  const double forward_s = work.forward / flops, backward_s = forward_s + work.weight_gradients / flops;
  return {forward_s, backward_s, backward_s, forward_s};
}

double Rates::disk_s(double read_bytes, double written_bytes) const {
  const double read_s = read_bytes / disk_read_bytes_per_s, write_s = written_bytes / disk_write_bytes_per_s;
  const double together_s = std::min(read_s, write_s);
  return 2 * together_s / machine.duplex + std::max(read_s, write_s) - together_s;
}

Rates make_rates(const Calibration& c, Device::Kind device, DType weight, const std::vector<DiskRates>& disks,
                 const std::vector<u32>& shares) {
  Rates rates;
  const bool halves = multiplies_halves(weight, device == Device::Kind::cuda);
  rates.flops = kBlockEfficiency * (halves ? c.matmul_flops_bf16 : c.matmul_flops_f32);
  rates.wide_flops = kBlockEfficiency * c.matmul_flops_f32;
  if (device == Device::Kind::cuda) {
    rates.flops = kBlockEfficiency * (halves ? kGpuFlopsBf16 : kGpuFlopsF32);
    rates.wide_flops = kBlockEfficiency * kGpuFlopsF32;
    rates.unit.copy_s = 1 / kLinkBytesPerS;
    const double state_bytes = 28;  // bytes read and written for each element: gradient, weight and moments
    rates.unit.gpu_sweep_s = 1 / kGpuMemoryBytesPerS;
    rates.unit.gpu_norm_s = 4 * rates.unit.gpu_sweep_s, rates.unit.gpu_update_s = state_bytes * rates.unit.gpu_sweep_s;
    rates.machine.cores = parallel::kLanes;
  }
  rates.reduce_scatter_bytes_per_s = c.reduce_scatter_bytes_per_s;
  rates.all_gather_bytes_per_s = c.all_gather_bytes_per_s;
  if (disks.empty()) return rates;
  rates.disk_read_bytes_per_s = striped_rate(shares, disks, &DiskRates::read_bytes_per_s);
  rates.disk_write_bytes_per_s = striped_rate(shares, disks, &DiskRates::write_bytes_per_s);
  rates.machine.duplex = 2;
  for (const DiskRates& disk : disks) rates.machine.duplex = std::min(rates.machine.duplex, disk.duplex());
  return rates;
}

BlockFlops block_flops(const parallel::Layout& layout, const nn::Sequential& model, u16 block, double tokens) {
  BlockFlops all;
  for (const parallel::GroupUse& use : layout.blocks[block]) {
    if (block == 0 && model.reads_tokens()) continue;  // the first block of a language model is an embedding lookup, without a product
    for (const parallel::Segment& s : layout.groups[use.group].segments) {
      const nn::Parameter& p = *model.parameters[s.parameter];
      if (p.shape.rank() < 2) continue;
      const double flops = 2 * static_cast<double>(s.elems) * p.positions * tokens;
      all.forward += flops;
      if (!layout.groups[use.group].frozen) all.weight_gradients += flops;
    }
  }
  return all;
}

double work_flops(const Instruction& i, const BlockFlops& block) {
  if (!computes_block(i.op)) return 0;
  const double again = i.op == Op::Forward || i.recompute ? block.forward : 0;
  return again + (makes_input_gradient(i.op) ? block.forward : 0) + (makes_weight_gradients(i.op) ? block.weight_gradients : 0);
}

double model_flops(const parallel::Plan& plan, const nn::Sequential& model) {
  double flops = 0;
  for (Instruction i : plan.train.head) {
    if (!computes_block(i.op)) continue;
    i.recompute = false;
    flops += work_flops(i, block_flops(plan.layout, model, i.block, tokens_of(plan)));
  }
  return flops;
}

std::optional<double> measured_flops(const Calibration& c, const parallel::Plan& plan) {
  const bool halves = multiplies_halves(plan.scheduling.format.weight, plan.on_gpu());
  const auto figure = plan.on_gpu() ? (halves ? &Calibration::gpu_matmul_flops_bf16 : &Calibration::gpu_matmul_flops_f32)
                                    : (halves ? &Calibration::matmul_flops_bf16 : &Calibration::matmul_flops_f32);
  return c.*figure == Calibration().*figure ? std::nullopt : std::optional(c.*figure);
}

StepCost predict(const parallel::Plan& plan, const StepLists& lists, const nn::Sequential& model, const Rates& rates) {
  const parallel::Plan* const alone = &plan;
  return predicted(std::span(&alone, 1), 0, lists, model, rates, [&](std::span<const parallel::List* const> world, const Works& work) {
    return simulate(
        *world[0], [&](const Instruction& i) { return work(0, i); }, rates.machine);
  });
}

StepCost predict_together(std::span<const parallel::Plan> stages, size_t mine, const StepLists& lists, const nn::Sequential& model,
                          const Rates& rates) {
  std::vector<const parallel::Plan*> plans;
  for (const parallel::Plan& stage : stages) plans.push_back(&stage);
  const parallel::Mesh mesh{1, static_cast<int>(stages.size())};
  return predicted(plans, mine, lists, model, rates, [&](std::span<const parallel::List* const> world, const Works& work) {
    return std::move(simulate_together(world, mesh, work, rates.machine)[mine]);
  });
}

double break_even_tokens(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates) {
  const parallel::TierBytes moved = plan.moved_per_step();
  return tokens_worth(rates.disk_s(at(moved.read, Tier::nvme), at(moved.written, Tier::nvme)), plan, model, rates);
}

double small_copies_tokens(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates) {
  double bytes = 0;
  for (const Instruction& i : plan.train.head) {
    // a block reads and writes activations, whose size is proportional to the number of tokens
    const bool by_tokens = computes_block(i.op);
    if (i.op != Op::Step && !by_tokens) bytes += at(i.read_bytes, Tier::host) + at(i.written_bytes, Tier::host);
  }
  return tokens_worth(bytes * rates.unit.copy_s / kSmallShare, plan, model, rates);
}

}  // namespace spillway::trainer
