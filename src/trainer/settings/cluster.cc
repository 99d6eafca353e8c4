#include "trainer/settings/cluster.h"

#include <fmt/format.h>

#include <vector>

#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

// kGpuReservedBytes is the GPU memory left to the driver, the libraries and the kernels' own needs. The planner leaves the same amount free
// on a GPU of this machine.
constexpr i64 kGpuReservedBytes = 512 * kMiB;
constexpr i64 kMostOfEither = 65536;

[[noreturn]] void reject_cluster(const std::string& text, const std::string& what, const std::string& why) {
  refuse(fmt::format(
      "[{}] expected NODESxGPUSxNAME-MEMORY,MEMORY[,nvme=SIZE], with memory and nvme per node, such as \"2x8xH100-80GiB,1TiB,nvme=7TB\", "
      "got \"{}\": {}",
      what, text, why));
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

class Reading {
 public:
  Reading(const std::string& text, const std::string& what) : text_(text), what_(what) {}

  Cluster cluster() const {
    const std::vector<std::string> parts = parts_of(text_);
    if (parts.size() < 2 || parts.size() > 3) reject_cluster(text_, what_, "the value needs one comma or two");
    Cluster cluster;
    read_gpus(parts[0], cluster);
    cluster.host_bytes = bytes(parts[1], "the memory of a node");
    if (parts.size() == 3) {
      if (!parts[2].starts_with("nvme=")) reject_cluster(text_, what_, "\"" + parts[2] + "\" is not nvme=SIZE");
      cluster.nvme_bytes = bytes(parts[2].substr(5), "nvme");
    }
    return cluster;
  }

 private:
  void read_gpus(const std::string& part, Cluster& cluster) const {
    const size_t first = part.find('x'), second = first == part.npos ? first : part.find('x', first + 1);
    const size_t dash = part.rfind('-');
    if (second == part.npos || dash == part.npos || dash < second)
      reject_cluster(text_, what_, "\"" + part + "\" is not NODESxGPUSxNAME-MEMORY");
    cluster.nodes = count(part.substr(0, first), "nodes");
    cluster.gpus = count(part.substr(first + 1, second - first - 1), "GPUs of a node");
    cluster.gpu = part.substr(second + 1, dash - second - 1);
    if (cluster.gpu.empty()) reject_cluster(text_, what_, "the GPU has no name");
    if (cluster.gpu == "cpu") reject_cluster(text_, what_, "to plan nodes without GPUs, use --device cpu and --ranks");
    cluster.gpu_bytes = bytes(part.substr(dash + 1), "the memory of a GPU");
    if (cluster.gpu_bytes <= kGpuReservedBytes)
      reject_cluster(text_, what_, "a GPU needs more than 512MiB, which are reserved for its driver");
  }

  i64 count(const std::string& digits, const char* of) const {
    try {
      const i64 value = parse_integer(digits, what_);
      if (value >= 1 && value <= kMostOfEither) return value;
    } catch (const Error&) {
    }
    reject_cluster(text_, what_, fmt::format("\"{}\" is not a number of {}", digits, of));
  }

  i64 bytes(const std::string& size, const char* of) const {
    try {
      if (const i64 value = parse_size(size, what_); value > 0) return value;
    } catch (const Error&) {
    }
    reject_cluster(text_, what_, fmt::format("\"{}\" is not a size for {}", size, of));
  }

  const std::string &text_, &what_;
};

}  // namespace

Cluster parse_cluster(const std::string& text, const std::string& what) { return Reading(text, what).cluster(); }

void plan_for(PlanConfig& config, const Cluster& cluster) {
  config.device = "cuda";
  config.ranks = cluster.ranks();
  config.device_memory_bytes = cluster.gpu_bytes - kGpuReservedBytes;
  config.host_memory_bytes = cluster.host_bytes / cluster.gpus;
  config.nvme.clear();
  if (cluster.nvme_bytes) config.nvme = {{"nvme", cluster.nvme_bytes, ScratchPath::Look::elsewhere}};
}

}  // namespace spillway::trainer
