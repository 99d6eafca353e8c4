#include "app/commands/selftest_cells.h"

namespace spillway::app {
namespace {

using Flags = std::vector<std::string>;

Flags placed(const std::string& parameters, const std::string& gradients, const std::string& optimizer, const Flags& more) {
  Flags flags = {"--place-parameters", parameters, "--place-gradients", gradients, "--place-optimizer", optimizer};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Flags stages(const std::string& schedule, Flags flags) {
  flags.insert(flags.end(), {"--pipeline-stages", "2", "--pipeline-schedule", schedule});
  return flags;
}

Flags ranks(int count, int stage, Flags flags) {
  flags.insert(flags.end(), {"--ranks", std::to_string(count), "--zero-stage", std::to_string(stage)});
  return flags;
}

// OtherKind is a kind of model and data that is tried with fewer placements.
struct OtherKind {
  std::string name;
  Flags flags;
};

std::vector<OtherKind> other_kinds(const std::string& folder) {
  const std::string text = folder + "/text.txt", rows = folder + "/rows.jsonl";
  return {{"experts in a window", {"--model", folder + "/experts", "--from-scratch", "--data", text, "--tokenizer", "bytes"}},
          {"packed rows", {"--model", "gpt2-tiny", "--data", rows, "--data-cache", folder + "/data-cache"}},
          {"adapters, base in nf4",
           {"--model", folder + "/base", "--data", text, "--tokenizer", "bytes", "--lora", "8", "--base-weights", "nf4"}}};
}

Flags as_threads(Flags flags) {
  flags.insert(flags.end(), {"--communicator", "local"});
  return flags;
}

}  // namespace

std::vector<SelftestCell> selftest_cells(const std::string& folder) {
  const Flags nvme = {"--nvme", folder + "/nvme"};
  const auto with = [&](Flags more) {
    more.insert(more.end(), nvme.begin(), nvme.end());
    return more;
  };
  const std::string one = "1 data-parallel rank", two = "2 data-parallel ranks";
  const Flags device = placed("device", "device", "device", {"--place-activations", "device", "--recompute", "none"});
  std::vector<SelftestCell> cells = {
      {one, "everything on the device", device},
      {one, "everything in host memory", placed("host", "host", "host", {"--place-activations", "host"})},
      {one, "everything on nvme", placed("nvme", "nvme", "nvme", with({"--optimizer-overlap", "forward"}))},
      {one, "nvme by pread, no overlap", placed("nvme", "host", "nvme", with({"--io-engine", "pread", "--optimizer-overlap", "none"}))},
      {one, "optimizer on nvme, in backward", placed("device", "device", "nvme", with({"--optimizer-overlap", "backward"}))},
      {one, "recomputed, one thread", placed("device", "host", "host", {"--recompute", "block", "--threads", "1"})},
      {one, "vertical order", placed("host", "nvme", "nvme", with({"--pipeline-schedule", "vertical"}))},
      {one, "two stages, gpipe", ranks(2, 0, stages("gpipe", device))},
      {one, "two stages, interleaved, in host memory", ranks(2, 0, stages("interleaved", placed("host", "host", "host", {})))},
      {one, "two stages, zb-v, everything on nvme", ranks(2, 0, stages("zb-v", placed("nvme", "nvme", "nvme", nvme)))},
      {two, "ZeRO 0, on the device", ranks(2, 0, device)},
      {two, "ZeRO 1, on the device", ranks(2, 1, device)},
      {two, "ZeRO 2, optimizer in host memory", ranks(2, 2, placed("device", "device", "host", {}))},
      {two, "ZeRO 3, on the device", ranks(2, 3, device)},
      {two, "ZeRO 3, on the device, ranks as threads", as_threads(ranks(2, 3, device))},
      {two, "ZeRO 3, everything on nvme", ranks(2, 3, placed("nvme", "nvme", "nvme", nvme))},
      {two, "two stages, 1f1b, ZeRO 3", ranks(4, 3, stages("1f1b", device))},
      {two, "two stages, vertical, ZeRO 2, everything on nvme", ranks(4, 2, stages("vertical", placed("nvme", "nvme", "nvme", nvme)))},
  };
  for (SelftestCell& cell : cells) cell.flags.insert(cell.flags.end(), {"--model", "gpt2-tiny", "--data", folder + "/text.txt"});
  for (const OtherKind& kind : other_kinds(folder)) {
    const auto add = [&](const std::string& family, const char* name, Flags flags) {
      flags.insert(flags.end(), kind.flags.begin(), kind.flags.end());
      cells.push_back({kind.name + ", " + family, name, std::move(flags)});
    };
    add(one, "everything on the device", device);
    add(one, "everything on nvme", placed("nvme", "nvme", "nvme", with({"--optimizer-overlap", "forward"})));
    add(one, "two stages, zb-v, in host memory", ranks(2, 0, stages("zb-v", placed("host", "host", "host", {}))));
    add(two, "ZeRO 0, on the device", ranks(2, 0, device));
    add(two, "two stages, 1f1b, ZeRO 3, everything on nvme", ranks(4, 3, stages("1f1b", placed("nvme", "nvme", "nvme", nvme))));
  }
  return cells;
}

}  // namespace spillway::app
