#include "trainer/settings/schedule_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "data/files/file.h"
#include "parallel/schedule/schedule_generate.h"
#include "trainer/settings/suggest.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

// kForeignNames maps schedule names of torch.distributed.pipelining and of papers to Spillway's names. They are in lower case, without a
// leading "schedule".
constexpr std::pair<std::string_view, std::string_view> kForeignNames[] = {
    {"interleaved1f1b", "interleaved"}, {"interleaved-1f1b", "interleaved"}, {"interleavedzerobubble", "zb-h1"},
    {"zero-bubble", "zb-h1"},           {"zbvzerobubble", "zb-v"},           {"loopedbfs", "vertical"},
    {"breadth-first", "vertical"},      {"pipedream-flush", "1f1b"}};

std::string nearest_schedule(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.starts_with("schedule")) name.erase(0, std::string_view("schedule").size());
  for (const auto& [theirs, ours] : kForeignNames) {
    if (name == theirs) return std::string(ours);
  }
  const auto names = parallel::schedule_names();
  return nearest(name, {names.begin(), names.end()});
}

}  // namespace

void refuse_schedule_name(const std::string& name) {
  std::string known;
  for (const std::string_view one : parallel::schedule_names()) known += std::string(one) + " ";
  const std::string close = nearest_schedule(name);
  throw Error(ErrorCode::usage, fmt::format("[--pipeline-schedule] unknown schedule {}: {}expected one of: {}or a CSV file",
                                            data::in_quotes(name), close.empty() ? "" : "did you mean " + close + "? ", known));
}

bool names_a_file(const std::string& name) {
  std::error_code none;
  return name.ends_with(".csv") || name.find('/') != std::string::npos || fs::is_regular_file(name, none);
}

}  // namespace spillway::trainer
