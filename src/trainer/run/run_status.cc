#include "trainer/run/run_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/node/host.h"
#include "trainer/run/run_folder.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMeanSteps = 50;
constexpr i64 kTailBytes = kMiB;  // more bytes than the last kMeanSteps lines of metrics.jsonl take
constexpr double kMostNumber = 9e18;

std::optional<double> number(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number()) return {};
  const auto value = found->get<double>();
  return std::abs(value) < kMostNumber ? std::optional(value) : std::nullopt;
}

std::optional<i64> whole_number(const nlohmann::json& row, const char* key) {
  const auto value = number(row, key);
  return value ? std::optional(static_cast<i64>(*value)) : std::nullopt;
}

std::optional<RunStatus::ByTier> by_tier(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_object()) return {};
  RunStatus::ByTier bytes{};
  constexpr const char* kNames[] = {"device", "host", "nvme"};
  for (size_t t = 0; t < bytes.size(); ++t) bytes[t] = whole_number(*found, kNames[t]).value_or(0);
  return bytes;
}

double age_s(const fs::path& file) {
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  return error ? 0 : std::max(0.0, std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count());
}

// Returns the lines of the last steps, oldest first. Only the end of the file is read. The part that
// is read may begin within a line; such a remainder does not parse, or has no step, and is skipped.
std::deque<nlohmann::json> last_rows(const fs::path& file) {
  std::istringstream in(read_tail(file, kTailBytes));
  std::deque<nlohmann::json> rows;
  for (std::string line; std::getline(in, line);) {
    nlohmann::json row = parse_json(line);
    if (!row.is_object() || whole_number(row, "step").value_or(0) < 1) continue;
    rows.push_back(std::move(row));
    if (rows.size() > kMeanSteps) rows.pop_front();
  }
  return rows;
}

// Means holds sums over the steps whose lines have a time. If a process died in a
// step, the line that a restart writes for this step has no time, and is skipped.
struct Means {
  i64 steps = 0, tokens = 0, positions = 0;
  double seconds = 0;
  std::array<double, offload::kTiers> read{}, written{};
};

Means means_of(const std::deque<nlohmann::json>& rows) {
  Means sum;
  for (const nlohmann::json& row : rows) {
    const auto ms = number(row, "step_ms");
    if (!ms || *ms <= 0) continue;
    ++sum.steps;
    sum.seconds += *ms / 1e3;
    const i64 tokens = std::max<i64>(0, whole_number(row, "tokens").value_or(0));
    sum.tokens += tokens;
    sum.positions += std::max(tokens, whole_number(row, "positions").value_or(0));
    const auto read = by_tier(row, "read_bytes").value_or(RunStatus::ByTier{}),
               written = by_tier(row, "written_bytes").value_or(RunStatus::ByTier{});
    for (size_t t = 0; t < offload::kTiers; ++t) {
      sum.read[t] += static_cast<double>(read[t]);
      sum.written[t] += static_cast<double>(written[t]);
    }
  }
  return sum;
}

i64 a_step(double sum, i64 steps) { return static_cast<i64>(std::min(sum / static_cast<double>(steps), kMostNumber)); }

void take_pace(RunStatus& status, const Means& sum, double drives) {
  if (sum.steps == 0) return;
  status.step_s = sum.seconds / static_cast<double>(sum.steps);
  status.tokens_per_s = static_cast<double>(sum.tokens) / sum.seconds;
  status.positions_per_s = static_cast<double>(sum.positions) / sum.seconds;
  if (status.steps) status.left_s = static_cast<double>(std::max<i64>(0, *status.steps - status.step)) * *status.step_s;
  for (size_t t = 0; t < offload::kTiers; ++t) {
    status.read_bytes[t] = a_step(sum.read[t], sum.steps);
    status.written_bytes[t] = a_step(sum.written[t], sum.steps);
  }
  const i64 nvme = status.written_bytes[static_cast<size_t>(offload::Tier::nvme)];
  status.wear = wear_of(nvme, 1, sum.tokens / sum.steps, *status.step_s, status.endurance_bytes, drives);
}

// Copies the wear of the drives, which the run computes and writes to each line of metrics.jsonl. It includes the time between steps.
void take_wear(RunStatus& status, const nlohmann::json& row) {
  const auto step = number(row, "nvme_written_per_step"), token = number(row, "nvme_written_per_token"),
             day = number(row, "nvme_written_per_day");
  if (step && token && day) status.wear = {*step, *token, *day, number(row, "days_to_endurance")};
}

// Returns the number of drives by which the run divided the wear (drives_worth). The number is derived from a line of metrics.jsonl,
// since only the run knew the shares of its paths. If these figures are missing, returns the number of paths.
double drives_of(const nlohmann::json& row, std::optional<i64> endurance_bytes, i64 paths) {
  const auto days = number(row, "days_to_endurance"), bytes_per_day = number(row, "nvme_written_per_day");
  return days && bytes_per_day && endurance_bytes ? *days * *bytes_per_day / static_cast<double>(*endurance_bytes)
                                                  : static_cast<double>(paths);
}

// Returns the lines of metrics.jsonl that the last process of the run wrote. An earlier process may have placed its state in other tiers,
// so its lines are left out.
std::deque<nlohmann::json> rows_since(const std::deque<nlohmann::json>& rows, std::optional<i64> began) {
  std::deque<nlohmann::json> since;
  for (const nlohmann::json& row : rows) {
    if (whole_number(row, "began_at_step") == began) since.push_back(row);
  }
  return since;
}

std::optional<i64> slowest_of(const std::deque<nlohmann::json>& rows) {
  std::map<i64, i64> steps;
  for (const nlohmann::json& row : rows) {
    if (const auto rank = whole_number(row, "slowest_rank")) ++steps[*rank];
  }
  const auto most = std::ranges::max_element(steps, {}, [](const auto& entry) { return entry.second; });
  return most == steps.end() ? std::nullopt : std::optional(most->first);
}

void take_metrics(RunStatus& status, const fs::path& run, i64 paths) {
  const fs::path file = run / "metrics.jsonl";
  const std::deque<nlohmann::json> rows = last_rows(file);
  if (rows.empty()) return;
  const nlohmann::json& last = rows.back();
  status.step = whole_number(last, "step").value_or(0);
  status.loss = number(last, "loss");
  status.tier_bytes = by_tier(last, "tier_bytes");
  status.peak_bytes = by_tier(last, "peak_bytes");
  status.last_step_age_s = age_s(file);
  for (const nlohmann::json& row : rows) {
    if (const auto loss = number(row, "validation_loss")) status.validation_loss = loss;
  }
  status.slowest_rank = slowest_of(rows);
  take_pace(status, means_of(rows_since(rows, whole_number(last, "began_at_step"))), drives_of(last, status.endurance_bytes, paths));
  take_wear(status, last);
}

// Copies the number of steps, the number of ranks and the drive's rated endurance from the run's config.json. Returns the number of
// --nvme paths.
i64 take_config(RunStatus& status, const fs::path& run) {
  const nlohmann::json config = parse_json(read_whole(run / "config.json").value_or(""));
  if (!config.is_object()) return 1;
  status.steps = whole_number(config, "steps");
  status.ranks = whole_number(config, "ranks").value_or(1);
  const auto rated = config.find("endurance");
  try {
    if (rated != config.end() && rated->is_string()) status.endurance_bytes = parse_endurance(rated->get<std::string>(), "endurance");
  } catch (const Error&) {  // the rating is in a form that this version does not know
  }
  const auto paths = config.find("nvme");
  return paths != config.end() && paths->is_array() ? static_cast<i64>(paths->size()) : 1;
}

// Finds the newest complete checkpoint. The run may remove a checkpoint while this function reads it. In that case the next older
// checkpoint is tried.
void take_checkpoint(RunStatus& status, const fs::path& run) {
  const std::vector<fs::path> all = checkpoints(run);
  for (auto at = all.rbegin(); at != all.rend() && !status.checkpoint; ++at) {
    try {
      status.checkpoint = {at->filename().string(), read_progress(*at).step, age_s(*at / "manifest.json")};
    } catch (const Error&) {
    }
  }
}

void check_is_run(const fs::path& run) {
  if (!fs::is_directory(run))
    throw Error(ErrorCode::data, fmt::format("[status] expected a run folder, got {}, which is no folder", run.string()));
  if (fs::exists(run / "metrics.jsonl") || fs::exists(run / "lock")) return;
  throw Error(ErrorCode::usage, fmt::format("[status] expected a run folder, got {}, which has neither metrics.jsonl nor a lock: "
                                            "train --out makes one, runs/<model>-<8 hex digits> by default",
                                            run.string()));
}

}  // namespace

std::string tokens_per_s_text(const RunStatus& status) {
  std::string text = fmt::format("{:.0f} tokens/s", *status.tokens_per_s);
  if (status.positions_per_s && *status.positions_per_s > *status.tokens_per_s)
    text += fmt::format(" ({:.0f} with padding)", *status.positions_per_s);
  return text;
}

const char* to_string(RunStatus::State state) {
  constexpr const char* kNames[] = {"running", "finished", "stopped"};
  return kNames[static_cast<size_t>(state)];
}

RunStatus read_run_status(const fs::path& run) {
  check_is_run(run);
  RunStatus status;
  const i64 paths = take_config(status, run);
  take_metrics(status, run, paths);
  take_checkpoint(status, run);
  if (const auto owner = run_owner(run)) {
    status.state = RunStatus::State::running;
    status.owner = *owner;
  } else if (status.steps && status.step >= *status.steps) {
    status.state = RunStatus::State::finished;
  }
  return status;
}

}  // namespace spillway::trainer
