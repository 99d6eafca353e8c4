#include "trainer/plan/cluster_rates.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace spillway::trainer {
namespace {

// kProgramBytes is about the memory that the program has before it takes any for the model, without the CUDA driver's.
constexpr i64 kProgramBytes = 64 * kMiB;

// Sets the times of updates and copies in the memory of a node, and of those in the memory of a GPU.
void set_units(UnitSeconds& unit, const Cluster& cluster, const optim::StateFormat& format) {
  const i64 tile_bytes = format.gradient_tile_bytes() + 2 * format.weight_tile_bytes() + 2 * format.state_tile_bytes();
  const double update_bytes = static_cast<double>(tile_bytes) / optim::kTileElems;
  const auto gradient_bytes = static_cast<double>(size_of(format.gradient));
  unit.sweep_s = 1 / cluster.host_bytes_per_s_each();
  unit.update_s = update_bytes * unit.sweep_s, unit.norm_s = gradient_bytes * unit.sweep_s;
  unit.gpu_sweep_s = 1 / (kMemoryShare * 1e9 * cluster.card.memory_gb_per_s);
  unit.gpu_update_s = update_bytes * unit.gpu_sweep_s, unit.gpu_norm_s = gradient_bytes * unit.gpu_sweep_s;
  unit.copy_s = 1 / (kLinkShare * cluster.card.link_bytes_per_s());
}

}  // namespace

double node_port_bytes_per_s(const Cluster& cluster) {
  if (cluster.card.nvlink_gpus >= cluster.gpus) return kNvlinkShare * 1e9 * cluster.card.nvlink_gb_per_s;
  return kLinkShare * cluster.card.link_bytes_per_s();
}

DiskRates cluster_disk(const Cluster& cluster) {
  DiskRates disk;
  if (cluster.nvme_read_bytes_per_s) disk.read_bytes_per_s = static_cast<double>(*cluster.nvme_read_bytes_per_s);
  if (cluster.nvme_write_bytes_per_s) disk.write_bytes_per_s = static_cast<double>(*cluster.nvme_write_bytes_per_s);
  // Reads and writes at once share the drives' bandwidth.
  const double read = disk.read_bytes_per_s, write = disk.write_bytes_per_s;
  if (cluster.nvme_read_bytes_per_s || cluster.nvme_write_bytes_per_s) disk.mixed_bytes_per_s = 2 * read * write / (read + write);
  return disk;
}

NodeRates cluster_rates(const Cluster& cluster, const parallel::PlanRequest& request, Tf32 tf32, bool fp8, int threads) {
  if (fp8 && !cluster.card.fp8)
    throw Error(ErrorCode::usage,
                fmt::format("[--precision] expected a card with tensor cores for fp8 (Ada, Hopper, Blackwell), got {}: give "
                            "--precision bf16",
                            cluster.card.name));
  optim::StateFormat format = request.scheduling.format.beside_matrices();
  if (is_of_parameters(format.rule)) format.rule = optim::Rule::adamw;  // as for a node that is measured (node_rates.cc)
  NodeRates node;
  Rates& rates = node.rates;
  rates.flops = (fp8 ? kFp8Speedup : 1) * kProductShare * kBlockEfficiency * cluster.card.flops(format.weight, tf32.matmul);
  rates.wide_flops = kProductShare * cluster.card.flops(DType::f32, tf32.matmul);
  set_units(rates.unit, cluster, format);
  rates.host_memory_s = 1 / cluster.host_bytes_per_s_each();
  rates.threads = threads;
  rates.machine.cores = parallel::kLanes;
  const int ranks = request.scheduling.sharding.ranks * request.scheduling.pipeline.ranks;
  if (request.gpu_to_gpu) {
    const double network = static_cast<double>(cluster.network_bytes_per_s.value_or(static_cast<i64>(kNetworkBytesPerS)));
    const double port = cluster.nodes == 1 ? node_port_bytes_per_s(cluster) : std::min(network, node_port_bytes_per_s(cluster));
    rates.reduce_scatter_bytes_per_s = rates.all_gather_bytes_per_s = ranks * port;
  }
  const DiskRates disk = cluster_disk(cluster);
  rates.disk_read_bytes_per_s = disk.read_bytes_per_s, rates.disk_write_bytes_per_s = disk.write_bytes_per_s;
  if (cluster.nvme_bytes) rates.machine.duplex = disk.duplex();
  node.doubts = "; no machine was measured: the times are computed from the vendor's figures and the assumed shares of them";
  node.process_bytes = node.peak_bytes = kProgramBytes;
  return node;
}

}  // namespace spillway::trainer
