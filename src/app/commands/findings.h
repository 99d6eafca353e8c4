// Finds the facts that `spillway doctor` reports, one per line, independent of how they are printed.
// Only reads the node, except that --reclaim removes scratch files of dead runs. Thread-safe.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/names/names.h"
#include "trainer/node/host.h"
#include "trainer/settings/config.h"

namespace spillway::app {

enum class Level { green, yellow, red };
const char* to_string(Level level);

struct Finding {
  Level level = Level::green;
  std::string name;  // name of the fact, such as "cores"
  std::string text;  // what was found
  std::string cure;  // for yellow: the fall-back in use; for red: what to do
};

/// Examines this node: everything below, in the order in which `doctor` prints it.
std::vector<Finding> examine(const DoctorConfig& config, const Host& host);
/// Returns the findings as `doctor --json` prints them, and as plain text, one line each.
nlohmann::ordered_json findings_json(const std::vector<Finding>& findings);
std::string findings_text(const std::vector<Finding>& findings);

/// Reports cores, instruction set, memory and the memlock limit.
std::vector<Finding> look_at_host(const Host& host);
/// Reports the figures that `spillway bench` has measured on this node.
Finding look_at_calibration(const Host& host);
/// Reports which I/O engine would be used, and why.
Finding look_at_io(offload::IoEngineKind kind);
/// Reports on a scratch path and on the files that dead runs left there, which `reclaim` removes.
/// On a login node no finding counts as an error, because no training is meant to run there.
std::vector<Finding> look_at_scratch(const ScratchPath& scratch, bool login, bool reclaim);
Finding look_at_gpu(const Host& host);
/// Reports whether this node's GPUs can reach each other, if there are several, and whether NCCL
/// is found, if there is a GPU. Must be called before look_at_gpu(), as probe_peers() requires.
std::vector<Finding> look_at_peers();
/// Reports the launcher, MPI and Slurm as seen from this node.
std::vector<Finding> look_at_cluster(const Host& host);

}  // namespace spillway::app
