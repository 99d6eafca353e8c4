#include "trainer/ranks/same_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "parallel/sockets/build_id.h"
#include "trainer/node/version.h"
#include "trainer/settings/option.h"

namespace spillway::trainer {
namespace {

using Json = nlohmann::ordered_json;

// Returns `value` as JSON text. Bytes that are no valid UTF-8, which file names may contain, are replaced.
std::string shown(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string told_text(const std::string& flags, const Facts& facts) {
  Json told = parse_ordered_json(flags);
  for (const Option& option : options()) {
    if (option.of_one_node) told.erase(option.key());
  }
  for (const NumberKey& fact : facts) told[fact.key] = fact.value;
  return shown(told);
}

}  // namespace

NumberKey this_program() { return {"program", fmt::format("{} (build {})", kVersion, parallel::build_id())}; }

void check_same_flags(const Peers& peers, const std::string& flags, const Facts& facts) {
  const std::vector<std::string> all = peers.gather(told_text(flags, facts));
  if (std::ranges::all_of(all, [&](const std::string& text) { return text == all.front(); })) return;
  std::vector<Json> told;
  for (const std::string& text : all) told.push_back(parse_ordered_json(text));
  for (const auto& [key, value] : told.front().items()) {
    for (size_t r = 1; r < told.size(); ++r) {
      const Json other = told[r].value(key, Json());
      if (other == value) continue;
      std::vector<size_t> with;
      for (size_t s = 1; s < told.size(); ++s) {
        if (told[s].value(key, Json()) == other) with.push_back(s);
      }
      throw AgreedError(
          ErrorCode::usage,
          fmt::format("[ranks] expected the same value on all ranks, got `{}` {} on rank 0 and {} on rank{} {}: start the same program "
                      "with the same flags on all ranks, with --out and --data on a filesystem that all nodes share",
                      key, shown(value), shown(other), with.size() > 1 ? "s" : "", fmt::join(with, ", ")));
    }
  }
  throw AgreedError(ErrorCode::usage, "[ranks] expected the same program with the same flags on all ranks");
}

}  // namespace spillway::trainer
