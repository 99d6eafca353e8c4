// `--cluster "2x8xH100-80GiB,1TiB,nvme=7TB"`: machines to plan for that are not this one. A value.
#pragma once
#include <optional>
#include <string>

#include "app/flags/config.h"

namespace spillway::app {

struct Cluster {
  i64 nodes = 1, gpus = 1;  // of a node
  std::string gpu;          // its name, which decides nothing
  i64 gpu_bytes = 0;
  i64 host_bytes = 0;             // of a node
  std::optional<i64> nvme_bytes;  // likewise

  i64 ranks() const { return nodes * gpus; }
};

/// Throws Error(usage) "[what] expected …, got …".
Cluster parse_cluster(const std::string& text, const std::string& what);

/// What a rank of it has to plan with, as flags would say it: a rank a GPU, the node's memory and drives shared by its ranks.
void plan_for(PlanConfig& config, const Cluster& cluster);

}  // namespace spillway::app
