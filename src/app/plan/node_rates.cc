#include "app/plan/node_rates.h"

#include <fmt/format.h>

#include "app/node/process_memory.h"

namespace spillway::app {
namespace {

void time_model(NodeRates& node, const parallel::PlanRequest& request, const Computer& computer, const Calibration& calibration) {
  const optim::StateFormat& format = request.scheduling.format;
  const bool on_gpu = computer.device.is_cuda();
  ThreadPool threads(computer.threads);
  time_units(node.rates.unit, format, threads);
  if (on_gpu && !computer.is_here) {
    node.doubts += "; no GPU was looked at: computing and copying are reckoned with constants";
    return;
  }
  if (on_gpu) time_gpu_units(node.rates.unit, format, computer.device);
  node.rates.blocks =
      time_blocks(request, computer.device, computer.tf32, threads, computer.device_bytes, node.rates.flops, node.probe_bytes);
  const bool alone = request.scheduling.sharding.ranks * request.scheduling.pipeline.ranks == 1;
  if (!alone && !calibration.ranks_measured)
    node.doubts += fmt::format("; exchanges are reckoned at a constant {:.0f} GB/s until `spillway bench communicator` has measured them",
                               node.rates.all_gather_bytes_per_s / 1e9);
  if (node.rates.blocks.empty()) node.doubts += "; blocks are too large to be timed and estimated instead";
}

}  // namespace

NodeRates measure_rates(const parallel::PlanRequest& request, const Computer& computer, const Calibration& calibration,
                        const DiskLook& disks, const std::vector<u32>& shares) {
  NodeRates node{.rates = make_rates(calibration, request.device, request.scheduling.format.weight, disks.disks, shares),
                 .doubts = disks.doubts};
  node.rates.threads = computer.threads;
  if (request.device == Device::Kind::cpu) node.rates.machine.cores = computer.threads;
  node.process_bytes = process_memory().now_bytes;
  if (request.training) time_model(node, request, computer, calibration);
  return node;
}

}  // namespace spillway::app
