// Predicts what a step of a plan costs on this node. The work of each instruction follows from the node's measured rates, and
// the whole step from a simulation of its Program, which is the list of these instructions. The rates come from a short timing
// of the model itself (probe.h), from Calibration and from the control group's limits. All types are values; thread-safe.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>

#include "parallel/plan/plan.h"
#include "parallel/proof/account.h"
#include "parallel/proof/simulate.h"
#include "trainer/node/calibration.h"
#include "trainer/plan/probe.h"

namespace spillway::trainer {

/// The planner uses these assumed rates of a data-centre GPU if there is no GPU to measure: FLOP/s of dense
/// matrix products in fp32 and bf16, bytes per second of the GPU's memory, and bytes per second of PCIe 4 to
/// host memory. They are round figures below what vendors publish for an A100 or H100, and are not measured.
constexpr double kGpuFlopsF32 = 60e12, kGpuFlopsBf16 = 600e12, kGpuMemoryBytesPerS = 2e12, kLinkBytesPerS = 20e9;
/// kGpuPortBytesPerS is the assumed rate between GPUs of different machines: each GPU has a network port of 200 Gb/s.
constexpr double kGpuPortBytesPerS = 25e9;

/// BlockFlops holds the floating-point operations of the matrix products in one block of the model: those of the forward, and those that
/// compute the gradients of the block's weights. Frozen weights have no gradients.
struct BlockFlops {
  double forward = 0, weight_gradients = 0;
};

/// kBlockEfficiency is an assumed share: for a block that was not timed, the FLOP/s of large matrix
/// products are multiplied by it. The rest is lost to norms, softmax and products with few rows.
constexpr double kBlockEfficiency = 0.6;

/// kWritePrice sets a price on writes to nvme, because writes wear a drive out. When plans are
/// compared, this share of the time that the drive takes to write a step's bytes is added to the
/// step's seconds. The price never rejects a plan that is more than 2 % faster (alternatives.h).
constexpr double kWritePrice = 0.1;

struct Rates {
  double flops = 100e9;              // FLOP/s of matrix products in a block that was not timed
  double wide_flops = 100e9;         // FLOP/s of fp32 products, such as Muon's
  std::vector<BlockSeconds> blocks;  // timed blocks; empty if none was timed
  /// The times of single operations, in seconds per element or byte. The defaults are those of two cores of an ordinary server with AVX2.
  UnitSeconds unit{.tile_s = 1e-9, .checksum_s = 1e-10, .copy_s = 1e-10, .update_s = 1.4e-9, .norm_s = 4e-10, .sweep_s = 5e-11};
  double disk_read_bytes_per_s = 1.5e9, disk_write_bytes_per_s = 1e9;
  /// Rates of two collectives. They count the bytes that all ranks of a node together read and write per second in the collective
  /// (calibration.h).
  double reduce_scatter_bytes_per_s = 6e9, all_gather_bytes_per_s = 6e9;
  /// Seconds per byte that the copies of optimizer updates which stream through a GPU take of the rate of host memory, in both directions
  /// together. 0 if the rate of host memory is not known; the link then decides.
  double host_memory_s = 0;
  double threads = 1;  // host threads that update parameters while a GPU computes
  // a model of this machine for simulation; for a GPU each executing thread has a separate core, so that none waits for another
  parallel::Machine machine;

  BlockSeconds block(size_t index, const BlockFlops& work) const;
  /// Returns the least seconds that the disk needs for these bytes. It
  /// assumes that a read and a write overlap as long as bytes of both remain.
  double disk_s(double read_bytes, double written_bytes) const;
  /// Returns the price of bytes written to nvme, in seconds of a step (kWritePrice).
  double write_price_s(double written_bytes) const { return kWritePrice * written_bytes / disk_write_bytes_per_s; }
};

/// Returns the rates of one rank that computes on `device` with weights of type `weight`. `disks` holds the rates of each nvme
/// path, and `shares` the share of the bytes that each path takes. The disk rates in the result are those of all paths together.
Rates make_rates(const Calibration& calibration, Device::Kind device, DType weight, const std::vector<DiskRates>& disks,
                 const std::vector<u32>& shares);

/// Returns the FLOPs of a block over `tokens` tokens: two for each token and matrix element. An embedding lookup costs nothing.
BlockFlops block_flops(const parallel::Layout& layout, const nn::Sequential& model, u16 block, double tokens);

/// Returns the FLOPs of an instruction that computes a block. A backward has as many for the gradient of the block's input
/// as a forward, and in addition those of the weight gradients. A recomputed forward counts here, but not in model_flops().
double work_flops(const parallel::Instruction& i, const BlockFlops& block);
/// Returns the FLOPs of a training step of this rank that the model itself requires, without recomputation.
double model_flops(const parallel::Plan& plan, const nn::Sequential& model);
/// Returns the matmul rate that `spillway bench` measured on the plan's device. The result is empty if it was not measured.
std::optional<double> measured_flops(const Calibration& calibration, const parallel::Plan& plan);

/// StepCost is the predicted time of a step and what the time is spent on.
struct StepCost {
  double seconds = 0;
  /// computing_s is the part of `seconds` in which the device computes: blocks, sums of gradients, and on a GPU the updates that the GPU
  /// makes. Fetching, evicting and exchanging do not count, whichever thread does them. Time in which several instructions compute counts
  /// once.
  double computing_s = 0;
  parallel::Account account;
  std::map<std::string, double> phase_ms;          // milliseconds by phase, as in metrics.jsonl (phases.h)
  std::vector<parallel::Timing> head_us, tail_us;  // start and end of each instruction in microseconds, counted from the start of its list

  /// Returns the time `part_s` as a share of the step, in [0, 1]. Returns 0 for a step that takes no time.
  double share(double part_s) const { return seconds > 0 ? part_s / seconds : 0; }
};

/// StepLists names the two instruction lists that make up a step. A plan has two training Programs; `when_clipping` selects the
/// one for the time when gradients are often clipped. Without training the lists are those of the forward Program. `head` depends
/// on what the previous step left to do, `tail` on how the step ends. Every stage of a pipeline runs lists of the same names.
struct StepLists {
  bool when_clipping = false;
  parallel::List parallel::Program::*head = &parallel::Program::head;
  parallel::List parallel::Program::*tail = &parallel::Program::commit;

  const parallel::Program& program(const parallel::Plan& plan) const {
    return !plan.training ? plan.forward : when_clipping ? *plan.train_when_clipping : plan.train;
  }
};

/// Simulates a step of one rank. It assumes that data from other ranks always arrives in time.
StepCost predict(const parallel::Plan& plan, const StepLists& lists, const nn::Sequential& model, const Rates& rates);
/// Simulates a step of all stages of a pipeline, whose ranks wait for each other, and returns the cost of the stage with index `mine`. Each
/// rank is assumed to have a separate machine with the given rates.
StepCost predict_together(std::span<const parallel::Plan> stages, size_t mine, const StepLists& lists, const nn::Sequential& model,
                          const Rates& rates);

/// Returns how many tokens a step must have so that its nvme traffic hides behind computing.
/// This is the number of tokens that are computed in the time of the traffic. If all parameters
/// are trained, it is t_nvme * FLOP/s / 6, where t_nvme is the seconds of traffic per parameter.
double break_even_tokens(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates);

/// On a CPU the computing threads themselves copy to and from host memory, so nothing hides these copies. small_copies_tokens() returns
/// the number of tokens per step from which on the copies of weights and gradients take at most kSmallShare of the computing time.
constexpr double kSmallShare = 0.05;
double small_copies_tokens(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates);

}  // namespace spillway::trainer
