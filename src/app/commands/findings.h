// What `doctor` finds, one fact a line, apart from how it is printed. Reads the node, changes nothing but --reclaim's orphans. Thread-safe.
#pragma once
#include <string>
#include <vector>

#include "app/flags/config.h"
#include "app/node/host.h"

namespace spillway::app {

enum class Level { green, yellow, red };
const char* to_string(Level level);

struct Finding {
  Level level = Level::green;
  std::string name;  // "cores"
  std::string text;  // what is there
  std::string cure;  // yellow: the fall-back; red: what to do
};

/// Cores, instruction set, memory, memlock.
std::vector<Finding> look_at_host(const Host& host);
/// What bench has measured here.
Finding look_at_calibration(const Host& host);
/// The engine that would be used, and why.
Finding look_at_io(offload::IoEngineKind kind);
/// A scratch path and the orphans on it, removed when `reclaim`. On a login node nothing is red.
std::vector<Finding> look_at_scratch(const ScratchPath& scratch, bool login, bool reclaim);
Finding look_at_gpu(const Host& host);
/// Whether this node's GPUs reach each other, where there are several; and NCCL, where there is one. Call it before look_at_gpu():
/// probe_peers() asks for that.
std::vector<Finding> look_at_peers();
/// The launcher, MPI and Slurm as seen from here.
std::vector<Finding> look_at_cluster(const Host& host);

}  // namespace spillway::app
