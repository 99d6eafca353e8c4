#include "trainer/plan/node_rates.h"

#include <fmt/format.h>

#include "trainer/node/process_memory.h"

namespace spillway::trainer {
namespace {

// Says if the machine was busy while it was measured.
void doubt_if_busy(NodeRates& node, const BusyWatch& watch) {
  const Contention contention = watch.so_far();
  if (contention.busy())
    node.doubts += "; the machine was busy while it was measured, so these times may be too long and are not kept: " + contention.text();
}

void time_model(NodeRates& node, const parallel::PlanRequest& request, const Computer& computer, const Calibration& calibration) {
  optim::StateFormat format = request.scheduling.format.beside_matrices();
  // Adafactor makes two passes over fewer bytes than AdamW, so it takes about as long
  if (is_of_parameters(format.rule)) format.rule = optim::Rule::adamw;
  const bool on_gpu = computer.device.is_cuda();
  ThreadPool threads(computer.threads);
  const BusyWatch watch(computer.clock);
  const double link_s = node.rates.unit.copy_s, bench_flops = node.rates.flops;
  time_units(node.rates.unit, format, threads);
  // time_units() has replaced the time of a copy over the GPU's link by that of a copy within host memory
  if (on_gpu) node.rates.unit.copy_s = link_s;
  if (on_gpu && !computer.is_here) {
    const int ranks = request.scheduling.sharding.ranks * request.scheduling.pipeline.ranks;
    if (request.gpu_to_gpu) node.rates.reduce_scatter_bytes_per_s = node.rates.all_gather_bytes_per_s = ranks * kGpuPortBytesPerS;
    node.doubts += "; no GPU was measured: the times of computing and copying are estimated from constants";
    doubt_if_busy(node, watch);
    return;
  }
  if (!on_gpu) node.rates.flops = kBlockEfficiency * time_products(request.scheduling.format.weight, threads);
  if (!on_gpu && is_of_matrices(request.scheduling.format.rule)) node.rates.wide_flops = time_products(DType::f32, threads);
  if (on_gpu) time_gpu_units(node.rates.unit, format, computer.device);
  i64 taken_bytes = 0;  // not used, because the caller reads the peak memory of the whole process from process_memory()
  node.rates.blocks = time_blocks(request, computer.device, computer.tf32, threads, computer.device_bytes, node.rates.flops, taken_bytes);
  if (watch.so_far().busy() && !on_gpu && calibration.threads > 0) node.rates.flops = bench_flops;
  doubt_if_busy(node, watch);
  const bool alone = request.scheduling.sharding.ranks * request.scheduling.pipeline.ranks == 1;
  if (!alone && !calibration.ranks_measured)
    node.doubts += fmt::format(
        "; exchanges between ranks are estimated at a constant {:.0f} GB/s until `spillway bench communicator` has measured them",
        node.rates.all_gather_bytes_per_s / 1e9);
  if (node.rates.blocks.empty()) node.doubts += "; blocks are too large to be timed, so their times are estimated";
}

}  // namespace

NodeRates measure_rates(const parallel::PlanRequest& request, const Computer& computer, const Calibration& calibration,
                        const DiskLook& disks, const std::vector<u32>& shares) {
  NodeRates node{.rates = make_rates(calibration, request.device, request.scheduling.format.weight, disks.disks, shares),
                 .doubts = disks.doubts};
  node.rates.threads = computer.threads;
  if (request.device == Device::Kind::cpu) node.rates.machine.cores = computer.threads;
  if (request.training) time_model(node, request, computer, calibration);
  const ProcessMemory memory = process_memory();
  node.process_bytes = memory.now_bytes, node.peak_bytes = memory.peak_bytes;
  return node;
}

}  // namespace spillway::trainer
