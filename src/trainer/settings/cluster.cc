#include "trainer/settings/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
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
      "[{}] expected NODESxGPUSxCARD[-MEMORY],MEMORY[,nvme=SIZE], with the memory of a GPU, and the memory and nvme of a node, such "
      "as \"2x8xH100-80GiB,1TiB,nvme=7TB\", got \"{}\": {}",
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
    if (parts.size() < 2) reject_cluster(text_, what_, "the value needs a comma, and then the memory of a node");
    Cluster cluster;
    read_gpus(parts[0], cluster);
    cluster.host_bytes = bytes(parts[1], "the memory of a node");
    for (size_t i = 2; i < parts.size(); ++i) read_more(parts[i], cluster);
    return cluster;
  }

 private:
  // Reads KEY=VALUE.
  void read_more(const std::string& part, Cluster& cluster) const {
    constexpr std::pair<std::string_view, std::optional<i64> Cluster::*> kKeys[] = {
        {"nvme", &Cluster::nvme_bytes},
        {"nvme-read", &Cluster::nvme_read_bytes_per_s},
        {"nvme-write", &Cluster::nvme_write_bytes_per_s},
        {"memory-rate", &Cluster::memory_bytes_per_s},
        {"network", &Cluster::network_bytes_per_s},
        {"cores", &Cluster::cores},
    };
    const size_t equals = std::min(part.find('='), part.size());
    const std::string key = part.substr(0, equals);
    const auto* const found = std::ranges::find(kKeys, key, [](const auto& one) { return one.first; });
    if (found == std::end(kKeys) || equals == part.size()) {
      reject_cluster(
          text_, what_,
          "\"" + part +
              "\" is not nvme=SIZE, cores=N (of a node), or, in bytes per second, nvme-read=SIZE, nvme-write=SIZE, memory-rate=SIZE "
              "(of a node) or network=SIZE (of a GPU)");
    }
    if (cluster.*found->second) reject_cluster(text_, what_, key + " is there twice");
    const std::string value = part.substr(equals + 1);
    cluster.*found->second = key == "cores" ? count(value, "cores") : bytes(value, key.c_str());
  }

  void read_gpus(const std::string& part, Cluster& cluster) const {
    const size_t first = part.find('x'), second = first == part.npos ? first : part.find('x', first + 1);
    if (second == part.npos) reject_cluster(text_, what_, "\"" + part + "\" is not NODESxGPUSxCARD");
    cluster.nodes = count(part.substr(0, first), "nodes");
    cluster.gpus = count(part.substr(first + 1, second - first - 1), "GPUs of a node");
    std::string name = part.substr(second + 1);
    const size_t dash = name.rfind('-');
    std::optional<i64> memory_bytes;
    if (dash != name.npos && (memory_bytes = size_of(name.substr(dash + 1)))) name.resize(dash);
    if (name.empty()) reject_cluster(text_, what_, "the GPU has no name");
    if (name == "cpu") reject_cluster(text_, what_, "to plan nodes without GPUs, use --device cpu and --ranks");
    const Card* const card = find_card(name, memory_bytes, what_);
    if (!card) refuse(fmt::format("[{}] expected a GPU of the table, got \"{}\"{}", what_, name, other_cards(name)));
    cluster.card = *card;
    cluster.gpu_bytes = memory_bytes.value_or(static_cast<i64>(card->memory_gib * static_cast<double>(kGiB)));
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

  // Returns the bytes of a size above 0, or nothing if the text is none.
  std::optional<i64> size_of(const std::string& size) const {
    try {
      if (const i64 value = parse_size(size, what_); value > 0) return value;
    } catch (const Error&) {
    }
    return {};
  }

  i64 bytes(const std::string& size, const char* of) const {
    if (const std::optional<i64> value = size_of(size)) return *value;
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
  if (!config.threads) config.threads = cluster.cores_each();
  config.nvme.clear();
  if (cluster.nvme_bytes) config.nvme = {{"nvme", cluster.nvme_bytes, ScratchPath::Look::elsewhere}};
}

}  // namespace spillway::trainer
