#include "trainer/events/scalars.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "trainer/plan/phases.h"

namespace spillway::trainer {
namespace {

using Json = nlohmann::json;

constexpr u64 kMostStep = 9'000'000'000'000'000;

struct Named {
  std::vector<std::string> path;  // keys in the line's JSON that lead to the number, outermost first
  std::string tag;
};

std::vector<Named> all_named() {
  std::vector<Named> all = {{{"loss"}, "loss"},
                            {{"validation_loss"}, "validation/loss"},
                            {{"validation_accuracy"}, "validation/accuracy"},
                            {{"grad_norm"}, "grad_norm"},
                            {{"lr"}, "learning_rate"},
                            {{"tokens"}, "speed/tokens"},
                            {{"positions"}, "speed/positions"},
                            {{"samples"}, "speed/samples"},
                            {{"tokens_per_s"}, "speed/tokens_per_s"},
                            {{"positions_per_s"}, "speed/positions_per_s"},
                            {{"samples_per_s"}, "speed/samples_per_s"},
                            {{"step_ms"}, "speed/step_ms"},
                            {{"predicted_ms"}, "speed/predicted_ms"},
                            {{"flops_per_s"}, "speed/flops_per_s"},
                            {{"matmul_share"}, "speed/matmul_share"},
                            {{"loss_scale"}, "update/loss_scale"},
                            {{"skipped"}, "update/skipped"},
                            {{"clipped"}, "update/clipped"},
                            {{"redo"}, "update/redo"}};
  for (const char* tier : {"device", "host", "nvme"}) {
    all.push_back({{"tier_bytes", tier}, fmt::format("memory/{}_bytes", tier)});
    all.push_back({{"peak_bytes", tier}, fmt::format("memory/peak_{}_bytes", tier)});
  }
  for (const char* tier : {"device", "host", "nvme"}) {
    all.push_back({{"read_bytes", tier}, fmt::format("bytes/read_{}", tier)});
    all.push_back({{"written_bytes", tier}, fmt::format("bytes/written_{}", tier)});
  }
  const std::vector<Named> several = {{{"exchanged_bytes"}, "bytes/exchanged"},
                                      {{"slowest_rank"}, "ranks/slowest"},
                                      {{"slowest_rank_waits"}, "ranks/slowest_waits"},
                                      {{"nvme_written_per_step"}, "endurance/bytes_per_step"},
                                      {{"nvme_written_per_token"}, "endurance/bytes_per_token"},
                                      {{"nvme_written_per_day"}, "endurance/bytes_per_day"},
                                      {{"days_to_endurance"}, "endurance/days"}};
  all.insert(all.end(), several.begin(), several.end());
  for (const std::string& phase : phase_names()) all.push_back({{"phase_ms", phase}, "phase_ms/" + phase});
  return all;
}

const std::vector<Named>& named() {
  static const std::vector<Named> all = all_named();
  return all;
}

const Json* find(const Json& line, const std::vector<std::string>& path) {
  const Json* at = &line;
  for (const std::string& key : path) {
    const auto found = at->find(key);  // find() gives end() if `at` is not a JSON object
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

// Returns the number of the line that `one` describes, or nothing if the line does not have it. A null stands for a number that is not
// finite, and the line's key "nonfinite" says which kind. matmul_share is always finite, so its null means that it is not known.
std::optional<double> number_of(const Json& line, const Named& one) {
  const Json* value = find(line, one.path);
  if (value == nullptr) return {};
  if (value->is_boolean()) return value->get<bool>() ? 1 : 0;
  if (value->is_number()) return value->get<double>();
  if (!value->is_null() || one.tag == "speed/matmul_share" || !line.contains("nonfinite")) return {};
  return line["nonfinite"] == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
}

i64 step_in(const Json& line) {
  const Json* step = line.is_object() ? find(line, {"step"}) : nullptr;
  if (step == nullptr || !step->is_number_integer()) return 0;
  return step->is_number_unsigned() && step->get<u64>() <= kMostStep ? step->get<i64>() : 0;
}

}  // namespace

i64 step_of_line(const std::string& metrics_line) { return step_in(parse_json(metrics_line)); }

i64 step_of_row(const std::string& csv_row) {
  i64 step = 0;
  const auto [end, wrong] = std::from_chars(csv_row.data(), csv_row.data() + csv_row.size(), step);
  return wrong == std::errc() && end < csv_row.data() + csv_row.size() && *end == ',' ? step : 0;
}

const std::vector<std::string>& scalar_tags() {
  static const std::vector<std::string> tags = [] {
    std::vector<std::string> all;
    for (const Named& one : named()) all.push_back(one.tag);
    return all;
  }();
  return tags;
}

StepScalars scalars_of(const std::string& metrics_line) {
  const Json line = parse_json(metrics_line);
  StepScalars found;
  found.step = step_in(line);
  if (found.step == 0) return found;
  for (const Named& one : named()) {
    if (const auto value = number_of(line, one)) found.scalars.push_back({one.tag, *value});
  }
  return found;
}

std::string csv_header() { return fmt::format("step,{}\n", fmt::join(scalar_tags(), ",")); }

std::string csv_row(const StepScalars& step) {
  std::string row = fmt::format("{}", step.step);
  auto next = step.scalars.begin();
  for (const std::string& tag : scalar_tags()) {
    row += ',';
    if (next != step.scalars.end() && next->tag == tag) row += fmt::format("{}", (next++)->value);
  }
  return row + "\n";
}

}  // namespace spillway::trainer
