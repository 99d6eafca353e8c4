// What a step of a plan would cost on this node: each instruction's work from the node's measured rates, and the whole step by simulation
// of its Program. Rates come from a moment's timing of the model itself (probe.h), from Calibration and the limits of the control group.
// Values; thread-safe.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>

#include "app/node/calibration.h"
#include "app/plan/probe.h"
#include "parallel/plan/plan.h"
#include "parallel/proof/account.h"
#include "parallel/proof/simulate.h"

namespace spillway::app {

/// A GPU of a data centre that nobody has looked at, by no name: dense products, its own memory, and PCIe 4 to the host's. Round figures
/// below what vendors publish of an A100 or H100, not measured.
constexpr double kGpuFlopsF32 = 60e12, kGpuFlopsBf16 = 600e12, kGpuMemoryBytesPerS = 2e12, kLinkBytesPerS = 20e9;
/// And of such GPUs that talk to each other: a port of 200 Gb/s for each.
constexpr double kGpuPortBytesPerS = 25e9;

/// Floating-point operations of matrix products in a block's forward, and in what makes its weights' gradients, which frozen ones have none
/// of.
struct BlockFlops {
  double forward = 0, weight_gradients = 0;
};

/// Of the rate of large matrix products, what a block reaches that was not timed: the rest goes to norms, softmax and short rows.
constexpr double kBlockEfficiency = 0.6;

/// Writes wear a drive out, so a choice between plans adds to a step's seconds this share of the time in which the drive writes the step's
/// bytes. It never passes over a plan that is more than 2 % faster (alternatives.h).
constexpr double kWritePrice = 0.1;

struct Rates {
  double flops = 100e9;              // of a block's matrix products, where it was not timed
  double wide_flops = 100e9;         // of fp32, as Muon's
  std::vector<BlockSeconds> blocks;  // timed; else empty
  /// Two cores of an ordinary server with AVX2.
  UnitSeconds unit{.tile_s = 1e-9, .checksum_s = 1e-10, .copy_s = 1e-10, .update_s = 1.4e-9, .norm_s = 4e-10, .sweep_s = 5e-11};
  double disk_read_bytes_per_s = 1.5e9, disk_write_bytes_per_s = 1e9;
  /// Read and written by all ranks of a node together (calibration.h).
  double reduce_scatter_bytes_per_s = 6e9, all_gather_bytes_per_s = 6e9;
  double threads = 1;         // of the host, beside a GPU
  parallel::Machine machine;  // on a GPU as many cores as lanes: none waits for another's

  BlockSeconds block(size_t index, const BlockFlops& work) const;
  /// At the least, for bytes that are read and written while one another.
  double disk_s(double read_bytes, double written_bytes) const;
  /// Of bytes written to nvme, in seconds of a step.
  double write_price_s(double written_bytes) const { return kWritePrice * written_bytes / disk_write_bytes_per_s; }
};

/// Of one rank computing on such a device in `weight` type; the disks' are those of all paths together, which take `shares` of the bytes.
Rates make_rates(const Calibration& calibration, Device::Kind device, DType weight, const std::vector<DiskRates>& disks,
                 const std::vector<u32>& shares);

/// Of a block over `tokens` tokens: two a token and matrix element, embeddings looked up for free.
BlockFlops block_flops(const parallel::Layout& layout, const nn::Sequential& model, u16 block, double tokens);

/// Of an instruction that computes a block: a forward's, as many for the gradient of what went in, and its weights' gradients'. What is run
/// again counts for the work done, not for the model's.
double work_flops(const parallel::Instruction& i, const BlockFlops& block);
/// Those of a training step of this rank that the model itself asks for.
double model_flops(const parallel::Plan& plan, const nn::Sequential& model);
/// What bench measured of matrix products where the plan computes; empty if it did not.
std::optional<double> measured_flops(const Calibration& calibration, const parallel::Plan& plan);

/// What a step spends where.
struct StepCost {
  double seconds = 0;
  /// Of these, while the device computes: blocks and sums of gradients, and on a GPU the updates that it makes itself. What is fetched,
  /// evicted or exchanged is not computing, whatever its lane; what is made at once counts once.
  double computing_s = 0;
  parallel::Account account;
  std::map<std::string, double> phase_ms;          // as measured steps have them (metrics.h)
  std::vector<parallel::Timing> head_us, tail_us;  // of each instruction, from its list's start

  /// Of the step, in [0, 1]; 0 of one that takes no time.
  double share(double part_s) const { return seconds > 0 ? part_s / seconds : 0; }
};

/// The lists that make up a step: which of a plan's two Programs (without training there is one, forward), what the step before left to do,
/// and how it ended. Every stage of a pipeline runs the same.
struct StepLists {
  bool when_clipping = false;
  parallel::List parallel::Program::*head = &parallel::Program::head;
  parallel::List parallel::Program::*tail = &parallel::Program::commit;

  const parallel::Program& program(const parallel::Plan& plan) const {
    return !plan.training ? plan.forward : when_clipping ? *plan.train_when_clipping : plan.train;
  }
};

/// By simulating them. Whatever other ranks send is there in time.
StepCost predict(const parallel::Plan& plan, const StepLists& lists, const nn::Sequential& model, const Rates& rates);
/// Of stage `mine` of a pipeline whose ranks wait for each other, each on a machine of its own with these rates.
StepCost predict_together(std::span<const parallel::Plan> stages, size_t mine, const StepLists& lists, const nn::Sequential& model,
                          const Rates& rates);

/// Tokens a step must have so that moving the model's bytes to and from nvme hides behind computing: the tokens that are computed in that
/// time (with all parameters trained t_nvme [s per parameter] * FLOP/s / 6).
double break_even_tokens(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates);

/// Copies to and from host memory are made by the threads that compute: they hide behind nothing. From how many tokens a step on those of
/// weights and gradients take at most kSmallShare of computing.
constexpr double kSmallShare = 0.05;
double small_copies_tokens(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates);

}  // namespace spillway::app
