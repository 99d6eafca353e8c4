#include "app/commands/cluster_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace spillway::app {
namespace {

using trainer::Card;
using Json = nlohmann::ordered_json;

const char* name_of(DType weight, bool tf32) {
  return weight == DType::bf16 ? "bf16" : weight == DType::f16 ? "fp16" : tf32 ? "tf32" : "fp32";
}

std::string gb_per_s(double bytes_per_s) { return fmt::format("{:.4g} GB/s", bytes_per_s / 1e9); }

std::string machines_text(const Cluster& c) {
  std::string text = fmt::format("for {} node{}, each with {} x {} of {} GPU memory, {} of host memory", c.nodes, c.nodes == 1 ? "" : "s",
                                 c.gpus, c.card.name, format_bytes(c.gpu_bytes), format_bytes(c.host_bytes));
  if (c.nvme_bytes) text += fmt::format(" and {} of nvme", format_bytes(*c.nvme_bytes));
  return text + fmt::format(": {} rank{}; nothing was measured\n", c.ranks(), c.ranks() == 1 ? "" : "s");
}

std::string card_text(const ClusterReport& r) {
  const Card& card = r.cluster.card;
  std::string text = fmt::format("  the vendor's figures ({}):\n    {:.4g} TFLOP/s dense in {}", card.source,
                                 card.flops(r.weight, r.tf32) / 1e12, name_of(r.weight, r.tf32));
  if (!card.on_tensor_cores(r.weight, r.tf32) && r.weight != DType::f32 && r.weight != DType::f64)
    text += fmt::format(", for which this card has no tensor cores (fp16: {:.4g})", card.fp16);
  if (r.fp8) text += fmt::format(" and {:.4g} in fp8", 2 * card.bf16);
  text += fmt::format(", {} of GPU memory,\n    PCIe {}.0 x{} with {} each way, ", gb_per_s(1e9 * card.memory_gb_per_s), card.pcie,
                      card.lanes, gb_per_s(card.link_bytes_per_s()));
  return text + (card.nvlink_gpus > 0
                     ? fmt::format("NVLink with {} each way between {} GPUs\n", gb_per_s(1e9 * card.nvlink_gb_per_s), card.nvlink_gpus)
                     : "no NVLink\n");
}

std::string shares_text(const ClusterReport& r) {
  return fmt::format(
      "  assumed shares of them: large products {:.0f} %, as cuBLAS reaches on an H100; blocks {:.0f} % of\n    that, because norms and "
      "small "
      "products are slower{}: {:.4g} TFLOP/s; round figures for\n    GPU memory ({:.0f} %), PCIe ({:.0f} %) and NVLink ({:.0f} %)\n",
      100 * trainer::kProductShare, 100 * trainer::kBlockEfficiency,
      r.fp8 ? fmt::format(", and with fp8 {:.4g} times as fast as in bf16", trainer::kFp8Speedup) : "", r.block_flops / 1e12,
      100 * trainer::kMemoryShare, 100 * trainer::kLinkShare, 100 * trainer::kNvlinkShare);
}

// NodeFacts collects what is said about a node, by who said it.
struct NodeFacts {
  std::vector<std::string> given, assumed;
  void add(bool is_given, std::string text) { (is_given ? given : assumed).push_back(std::move(text)); }
};

std::string node_text(const ClusterReport& r) {
  const Cluster& c = r.cluster;
  NodeFacts facts;
  facts.add(c.cores.has_value(), fmt::format("{} core{} for each GPU", c.cores_each(), c.cores_each() == 1 ? "" : "s"));
  facts.add(c.memory_bytes_per_s.has_value(), gb_per_s(c.host_bytes_per_s_each()) + " of host memory for each GPU");
  if (c.nvme_bytes) {
    const trainer::DiskRates disk = cluster_disk(c);
    facts.add(c.nvme_read_bytes_per_s.has_value(), gb_per_s(disk.read_bytes_per_s) + " read from the nvme of a node");
    facts.add(c.nvme_write_bytes_per_s.has_value(), gb_per_s(disk.write_bytes_per_s) + " written to it");
  }
  if (c.nodes > 1)
    facts.add(c.network_bytes_per_s.has_value(),
              gb_per_s(static_cast<double>(c.network_bytes_per_s.value_or(static_cast<i64>(trainer::kNetworkBytesPerS)))) +
                  " between a GPU and other nodes");
  std::string text;
  if (!facts.given.empty()) text += fmt::format("  given: {}\n", fmt::join(facts.given, ",\n    "));
  if (!facts.assumed.empty()) {
    text += fmt::format("  assumed until given (cores=N memory-rate= nvme-read= nvme-write= network=):\n    {}\n",
                        fmt::join(facts.assumed, ",\n    "));
  }
  if (c.ranks() > 1) text += fmt::format("  all ranks together exchange {}\n", gb_per_s(r.between_ranks_bytes_per_s));
  return text;
}

}  // namespace

std::string cluster_text(const ClusterReport& r) { return machines_text(r.cluster) + card_text(r) + shares_text(r) + node_text(r); }

Json cluster_json(const ClusterReport& r) {
  const Cluster& c = r.cluster;
  const Card& card = c.card;
  const trainer::DiskRates disk = cluster_disk(c);
  const Json vendor = {{"name", card.name},
                       {"source", card.source},
                       {"type", name_of(r.weight, r.tf32)},
                       {"flops_per_s", card.flops(r.weight, r.tf32)},
                       {"fp8", r.fp8},
                       {"on_tensor_cores", card.on_tensor_cores(r.weight, r.tf32)},
                       {"memory_bytes_per_s", 1e9 * card.memory_gb_per_s},
                       {"pcie_bytes_per_s", card.link_bytes_per_s()},
                       {"nvlink_bytes_per_s", 1e9 * card.nvlink_gb_per_s},
                       {"nvlink_gpus", card.nvlink_gpus}};
  const Json shares = {{"products", trainer::kProductShare},
                       {"blocks", trainer::kProductShare * trainer::kBlockEfficiency},
                       {"memory", trainer::kMemoryShare},
                       {"pcie", trainer::kLinkShare},
                       {"nvlink", trainer::kNvlinkShare}};
  Json assumed = Json::array();
  for (const auto& [name, value] :
       {std::pair("cores", &Cluster::cores), std::pair("memory-rate", &Cluster::memory_bytes_per_s),
        std::pair("nvme-read", &Cluster::nvme_read_bytes_per_s), std::pair("nvme-write", &Cluster::nvme_write_bytes_per_s),
        std::pair("network", &Cluster::network_bytes_per_s)}) {
    if (!(c.*value)) assumed.push_back(name);
  }
  return {
      {"nodes", c.nodes},
      {"gpus", c.gpus},
      {"gpu_memory_bytes", c.gpu_bytes},
      {"host_memory_bytes", c.host_bytes},
      {"card", vendor},
      {"assumed_shares", shares},
      {"cores_per_gpu", c.cores_each()},
      {"host_memory_bytes_per_s_per_gpu", c.host_bytes_per_s_each()},
      {"nvme_read_bytes_per_s", disk.read_bytes_per_s},
      {"nvme_write_bytes_per_s", disk.write_bytes_per_s},
      {"network_bytes_per_s_per_gpu", static_cast<double>(c.network_bytes_per_s.value_or(static_cast<i64>(trainer::kNetworkBytesPerS)))},
      {"between_ranks_bytes_per_s", r.between_ranks_bytes_per_s},
      {"assumed", assumed}};
}

}  // namespace spillway::app
