// What `plan` says about the machines of --cluster: the vendor's figures, the shares of them that are assumed, and what was given or
// assumed about a node. All functions are pure.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/plan/cluster_rates.h"

namespace spillway::app {

using trainer::Cluster;

/// ClusterReport holds the machines of --cluster and how a rank uses them.
struct ClusterReport {
  Cluster cluster;
  DType weight = DType::bf16;            // type of the weights that the GPU multiplies
  bool tf32 = false;                     // whether fp32 products may run in tf32
  bool fp8 = false;                      // whether linear layers multiply in fp8
  double block_flops = 0;                // FLOP/s that blocks are assumed to reach
  double between_ranks_bytes_per_s = 0;  // bytes per second that all ranks together exchange
};

/// Returns the report in lines, each with a newline.
std::string cluster_text(const ClusterReport& report);
/// Returns the object "cluster" of `plan --json`. Rates are in bytes or FLOPs per second.
nlohmann::ordered_json cluster_json(const ClusterReport& report);

}  // namespace spillway::app
