// Parses --cluster, which describes other machines than this one to plan for: "2x8xH100,1TiB,nvme=7TB" means two nodes of eight GPUs. The
// GPU is one of a table (cards.h). What the user does not say about a node has a stated default. Cluster is a plain value.
#pragma once
#include <optional>
#include <string>

#include "trainer/settings/cards.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// These are the defaults for what the value of --cluster may leave out: cores, and bytes per second of host memory, that each GPU has of
/// its node; bytes per second at which each GPU reaches other nodes (a port of 200 Gb/s). They suit a server with DDR4 or DDR5 memory and
/// are not measured. The rates of a node's drives default to those of DiskRates (calibration.h).
constexpr i64 kCoresOfAGpu = 8;
constexpr double kHostBytesPerSOfAGpu = 40e9, kNetworkBytesPerS = 25e9;

struct Cluster {
  i64 nodes = 1, gpus = 1;        // nodes of the cluster; GPUs per node
  Card card;                      // what the vendor says about the GPU
  i64 gpu_bytes = 0;              // memory of one GPU in bytes
  i64 host_bytes = 0;             // memory of one node in bytes
  std::optional<i64> nvme_bytes;  // nvme space of one node in bytes
  /// What the user said about a node: its cores, the bytes per second of its memory, of reads and of writes of its drives, all drives
  /// together, and of the network port of each GPU.
  std::optional<i64> cores, memory_bytes_per_s, nvme_read_bytes_per_s, nvme_write_bytes_per_s, network_bytes_per_s;

  i64 ranks() const { return nodes * gpus; }
  /// Returns the cores of one rank, at least 1.
  i64 cores_each() const { return std::max<i64>(1, cores.value_or(kCoresOfAGpu * gpus) / gpus); }
  /// Returns the bytes per second of host memory of one rank.
  double host_bytes_per_s_each() const {
    return memory_bytes_per_s ? static_cast<double>(*memory_bytes_per_s) / static_cast<double>(gpus) : kHostBytesPerSOfAGpu;
  }
};

/// Parses the value of --cluster. `what` names the flag in messages. Throws Error(usage) "[what] expected …, got …".
Cluster parse_cluster(const std::string& text, const std::string& what);

/// Sets the fields of `config` that the resource flags would set, to the values for one rank of the
/// cluster. Each GPU has one rank. The ranks of a node get equal parts of its memory, cores and drives.
void plan_for(PlanConfig& config, const Cluster& cluster);

}  // namespace spillway::trainer
