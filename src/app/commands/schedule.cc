// Implements `spillway schedule`, which makes or reads a pipeline schedule, and checks, times, prints, draws and writes it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "app/commands/commands.h"
#include "app/report/schedule_report.h"
#include "base/error.h"
#include "data/files/beside.h"
#include "parallel/schedule/schedule_csv.h"
#include "parallel/schedule/schedule_generate.h"
#include "trainer/settings/schedule_names.h"
#include "trainer/settings/suggest.h"
#include "trainer/settings/text.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using parallel::Schedule;

// Reads a schedule file, which contains its own sizes. Size flags that are given too must match them.
Schedule read(const ScheduleConfig& config) {
  Schedule schedule = parallel::read_schedule_csv(config.pipeline_schedule);
  const std::tuple<const char*, std::optional<i64>, i64> promises[] = {
      {"--pipeline-stages", config.pipeline_stages, schedule.ranks()},
      {"--pipeline-chunks", config.pipeline_chunks, schedule.chunks()},
      {"--gradient-accumulation-steps", config.gradient_accumulation_steps, schedule.micro_batches}};
  for (const auto& [flag, promised, has] : promises) {
    if (promised && *promised != has)
      refuse(
          fmt::format("[{}] expected {}, as in the file {}, got {}: leave the flag out", flag, has, config.pipeline_schedule, *promised));
  }
  return schedule;
}

Schedule make_or_read(const ScheduleConfig& config) {
  const auto kind = parallel::schedule_kind(config.pipeline_schedule);
  if (!kind && names_a_file(config.pipeline_schedule)) return read(config);
  if (!kind) refuse_schedule_name(config.pipeline_schedule);
  return parallel::generate_schedule(*kind, {.ranks = config.pipeline_stages.value_or(1),
                                             .micro_batches = config.gradient_accumulation_steps.value_or(1),
                                             .chunks = config.pipeline_chunks.value_or(parallel::default_chunks(*kind))});
}

bool has_idle(const Schedule& schedule) {
  return std::ranges::any_of(schedule.rows, [](const auto& row) {
    return std::ranges::any_of(row, [](const parallel::Action& action) { return action.kind == parallel::ActionKind::idle; });
  });
}

std::string csv_text(const Schedule& schedule, const std::string& path) {
  if (path.ends_with(".compact.csv")) return parallel::to_csv(parallel::without_idle(schedule));
  return parallel::to_csv(has_idle(schedule) ? schedule : parallel::with_idle(schedule));
}

void write(const std::string& path, const std::string& text, Console& console) {
  data::AtomicFile file(path, data::Existing::replace);
  file.file().write(0, std::as_bytes(std::span(text)));
  file.commit();
  console.log("wrote " + path);
}

}  // namespace

int run_schedule(const ScheduleConfig& config, Console& console) {
  std::error_code none;
  if (config.csv && fs::equivalent(*config.csv, config.pipeline_schedule, none))
    refuse("[--csv] expected a file other than that of --pipeline-schedule, got " + *config.csv + " for both");
  const Schedule schedule = make_or_read(config);
  const parallel::ScheduleTimes times = parallel::simulate_schedule(schedule, config.costs);
  const ScheduleReport report{schedule, config.costs, times};
  if (config.csv) write(*config.csv, csv_text(schedule, *config.csv), console);
  if (config.out) write(*config.out, schedule_svg(report), console);
  console.result([&] { return schedule_json(report); },
                 [&] {
                   // A program that reads the table from a pipe finds each rank in one line.
                   return console.out_terminal() ? schedule_text(report, console.size().first) : schedule_text(report);
                 });
  return 0;
}

}  // namespace spillway::app
