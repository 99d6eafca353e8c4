#include "trainer/settings/schedule_costs.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

using parallel::ScheduleCosts;
using parallel::StageCosts;

constexpr std::pair<const char*, double StageCosts::*> kTimes[] = {
    {"F", &StageCosts::forward}, {"B", &StageCosts::backward}, {"I", &StageCosts::backward_input}, {"W", &StageCosts::backward_weight}};

std::vector<std::string> pieces(const std::string& text, char mark) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string piece; std::getline(in, piece, mark);) all.push_back(piece);
  return all;
}

// Sets the times of one kind of action, such as forward. A single time stays one entry for all stages until another key gives one time per
// stage.
void set_times(ScheduleCosts& costs, double StageCosts::*time, const std::string& text, const std::string& what) {
  const std::vector<std::string> values = pieces(text, ':');
  const size_t stages = std::max(costs.stages.size(), values.size());
  if (values.empty() || (values.size() != 1 && values.size() != stages) || (costs.stages.size() != 1 && costs.stages.size() != stages)) {
    throw Error(ErrorCode::usage,
                "[" + what + "] expected one time for all stages, or the same number of times in every list, got \"" + text + "\"");
  }
  costs.stages.resize(stages, costs.stages.front());
  for (size_t s = 0; s < stages; ++s) costs.stages[s].*time = parse_number(values[values.size() == 1 ? 0 : s], what);
}

void set(ScheduleCosts& costs, const std::string& key, const std::string& value, const std::string& what) {
  if (key == "transfer") {
    costs.transfer = parse_number(value, what);
  } else if (key == "kept") {
    costs.kept_for_weight = parse_number(value, what);
  } else {
    const auto time = std::ranges::find(kTimes, key, [](const auto& named) { return std::string(named.first); });
    if (time == std::end(kTimes))
      throw Error(ErrorCode::usage, "[" + what + "] expected F, B, I, W, transfer or kept, got \"" + key + "\"");
    set_times(costs, time->second, value, what);
  }
}

}  // namespace

ScheduleCosts parse_costs(const std::string& text, const std::string& what) {
  ScheduleCosts costs;
  std::set<std::string> seen;
  for (const std::string& piece : pieces(text, ',')) {
    const size_t equals = piece.find('=');
    if (equals == std::string::npos) throw Error(ErrorCode::usage, "[" + what + "] expected KEY=TIME such as B=2, got \"" + piece + "\"");
    const std::string key = piece.substr(0, equals);
    if (!seen.insert(key).second) throw Error(ErrorCode::usage, "[" + what + "] expected each key once, got " + key + " twice");
    set(costs, key, piece.substr(equals + 1), what);
  }
  return costs;
}

std::string print_costs(const ScheduleCosts& costs) {
  std::string text;
  for (const auto& [name, time] : kTimes) {
    std::string values;
    const bool alike = std::ranges::all_of(costs.stages, [&](const StageCosts& s) { return s.*time == costs.stages.front().*time; });
    for (const StageCosts& s : costs.stages) {
      if (alike && !values.empty()) break;
      values += (values.empty() ? "" : ":") + print_number(s.*time);
    }
    text += (text.empty() ? "" : ",") + std::string(name) + "=" + values;
  }
  return text + ",transfer=" + print_number(costs.transfer) + ",kept=" + print_number(costs.kept_for_weight);
}

}  // namespace spillway::trainer
