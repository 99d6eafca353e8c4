// Parses --cluster, which describes other machines than this one to plan for:
// "2x8xH100-80GiB,1TiB,nvme=7TB" means two nodes of eight GPUs. Cluster is a plain value.
#pragma once
#include <optional>
#include <string>

#include "trainer/settings/config.h"

namespace spillway::trainer {

struct Cluster {
  i64 nodes = 1, gpus = 1;        // nodes of the cluster; GPUs per node
  std::string gpu;                // the GPU's name, which has no influence on the plan
  i64 gpu_bytes = 0;              // memory of one GPU in bytes
  i64 host_bytes = 0;             // memory of one node in bytes
  std::optional<i64> nvme_bytes;  // nvme space of one node in bytes

  i64 ranks() const { return nodes * gpus; }
};

/// Parses the value of --cluster. `what` names the flag in messages. Throws Error(usage) "[what] expected …, got …".
Cluster parse_cluster(const std::string& text, const std::string& what);

/// Sets the fields of `config` that the resource flags would set, to the values for one rank of the
/// cluster. Each GPU has one rank. The ranks of a node get equal parts of its memory and its drives.
void plan_for(PlanConfig& config, const Cluster& cluster);

}  // namespace spillway::trainer
