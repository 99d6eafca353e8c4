// Parses --cluster, which describes machines other than this one to plan for: "2x8xH100-80GiB,1TiB,nvme=7TB" is two nodes of eight GPUs.
// Cluster is a plain value.
#pragma once
#include <optional>
#include <string>

#include "trainer/settings/config.h"

namespace spillway::trainer {

struct Cluster {
  i64 nodes = 1, gpus = 1;        // number of nodes; GPUs per node
  std::string gpu;                // the GPU's name, which has no influence on the plan
  i64 gpu_bytes = 0;              // memory of one GPU
  i64 host_bytes = 0;             // memory of one node
  std::optional<i64> nvme_bytes;  // nvme space of one node

  i64 ranks() const { return nodes * gpus; }
};

/// Parses the value of --cluster. `what` names the flag in messages. Throws Error(usage) "[what] expected …, got …".
Cluster parse_cluster(const std::string& text, const std::string& what);

/// Sets the fields of `config` that the resource flags would set, with the values of one rank of the cluster. Each GPU has one rank; the
/// ranks of a node divide its memory and its drives equally.
void plan_for(PlanConfig& config, const Cluster& cluster);

}  // namespace spillway::trainer
