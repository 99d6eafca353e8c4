#include "app/report/reported_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "trainer/node/host.h"
#include "trainer/settings/text.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uintmax_t kMostConfigBytes = 16 * kMiB;

void check_folder(const fs::path& run) {
  std::error_code error;
  if (!fs::is_directory(run, error))
    throw Error(ErrorCode::data,
                fmt::format("[report] expected a run folder, got {}, which is not a folder: give the --out of train, which "
                            "is runs/<model>-<8 hex digits> by default",
                            run.string()));
  if (fs::exists(run / "metrics.jsonl", error) || fs::exists(run / "lock", error)) return;
  throw Error(ErrorCode::usage, fmt::format("[report] expected a run folder, got {}, which has neither metrics.jsonl nor a lock file: give "
                                            "the --out of train",
                                            run.string()));
}

std::string value_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void take_config(ReportedRun& made, const fs::path& run) {
  const fs::path file = run / "config.json";
  std::error_code error;
  const auto size = fs::file_size(file, error);
  const Json all = error || size > kMostConfigBytes ? Json() : parse_ordered_json(read_whole(file).value_or(""));
  if (!all.is_object()) {
    made.notes.push_back(fmt::format("{} cannot be read: the run's flags are not known", file.string()));
    return;
  }
  for (const auto& [key, value] : all.items()) made.config.emplace_back(key, value_text(value));
  made.go_on = "spillway train --config " + shell_word(file.string()) + " --out " + shell_word(run.string());
  if (const auto resume = all.find("resume"); resume == all.end() || *resume != "auto") made.go_on += " --resume auto";
  if (made.status.state == RunStatus::State::finished) made.go_on += fmt::format(" --steps {}", 2 * made.status.step);
}

void take_notes(ReportedRun& made, const fs::path& file) {
  const History& h = made.history;
  if (h.damaged > 0) {
    made.notes.push_back(fmt::format("{}: {} line{} damaged and left out: line{} {}{}", file.string(), h.damaged,
                                     h.damaged == 1 ? " is" : "s are", h.damaged == 1 ? "" : "s", fmt::join(h.damaged_lines, ", "),
                                     h.damaged > static_cast<i64>(h.damaged_lines.size()) ? ", …" : ""));
  }
  if (h.torn) {
    made.notes.push_back(fmt::format("{}: the last line is incomplete and is left out: the run {}", file.string(),
                                     made.status.state == RunStatus::State::running ? "is writing it" : "was killed while writing it"));
  }
  if (h.run_again > 0) {
    made.notes.push_back(fmt::format("{} line{} of steps that were run again: only the last line of a step counts", h.run_again,
                                     h.run_again == 1 ? " is" : "s are"));
  }
  if (h.parts_lost > 0)
    made.notes.push_back(fmt::format("metrics.jsonl has no line for {} of the steps between the first and the last", h.parts_lost));
  if (!made.plan) made.notes.push_back("the folder has no plan (plan.json): an older program made the run, or the run has not begun");
}

}  // namespace

ReportedRun read_run(const fs::path& run, i64 buckets) {
  check_folder(run);
  ReportedRun made;
  made.name = run.string();
  made.status = read_run_status(run);
  made.plan = read_run_plan(run);
  made.timeline = read_timeline(run);
  take_config(made, run);
  const fs::path file = run / "metrics.jsonl";
  std::error_code error;
  if (fs::exists(file, error)) made.history = read_history(file, buckets, made.plan);
  take_notes(made, file);
  return made;
}

}  // namespace spillway::app
