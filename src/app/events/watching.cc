#include "app/events/watching.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <sstream>

#include "app/events/event.h"
#include "app/events/scalars.h"
#include "app/node/host.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBegin = "events.out.tfevents.";
constexpr size_t kDigits = 10;
constexpr i64 kMostSeconds = 9'999'999'999;
constexpr size_t kMostWaiting = 16 * kMiB;

double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Of an event file's name; -1: it is none.
i64 seconds_of(const std::string& name) {
  if (!name.starts_with(kBegin)) return -1;
  const std::string digits = name.substr(std::string_view(kBegin).size(), kDigits);
  if (digits.size() != kDigits || !std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; })) return -1;
  return std::stoll(digits);
}

GrowingFile open_events(const fs::path& run, i64 step, const std::string& config) {
  const double now = wall_time();
  GrowingFile events(data::File::create(run / next_event_name(run, static_cast<i64>(now))), 0, kMostWaiting);
  events.append(first_event(now) + start_event(now, step > 0 ? step + 1 : 0) + text_event(now, step, "config", config));
  return events;
}

GrowingFile open_csv(const fs::path& run) {
  std::istringstream lines(read_whole(run / "metrics.jsonl").value_or(""));
  std::string rows = csv_header();
  for (std::string line; std::getline(lines, line);) {
    if (const StepScalars step = scalars_of(line); step.step > 0) rows += csv_row(step);
  }
  data::replace_text(run / "metrics.csv", rows);
  return {data::File::open_to_write(run / "metrics.csv"), static_cast<i64>(rows.size()), kMostWaiting};
}

}  // namespace

std::string next_event_name(const fs::path& run, i64 now) {
  i64 last = -1;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run, ignored)) last = std::max(last, seconds_of(entry.path().filename().string()));
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  const std::string name =
      fmt::format("{}{:0{}}.{}.{}.", kBegin, std::min(std::max(last + 1, now), kMostSeconds), kDigits, host, ::getpid());
  int number = 0;
  while (fs::exists(run / (name + std::to_string(number)))) ++number;
  return name + std::to_string(number);
}

Watching::Watching(const fs::path& run, WatchWish wish, i64 step, const std::string& config) : run_(run) {
  const auto open = [&](bool wanted, std::optional<GrowingFile>& file, const char* name, const std::function<GrowingFile()>& make) {
    try {
      if (wanted) file.emplace(make());
    } catch (const std::exception& error) {
      missing_.push_back(fmt::format("the run goes on without {}: {}", name, error.what()));
    }
  };
  open(wish.tensorboard, events_, "event files for TensorBoard", [&] { return open_events(run, step, config); });
  open(wish.metrics_csv || fs::exists(run / "metrics.csv"), csv_, "metrics.csv", [&] { return open_csv(run); });
}

void Watching::line(const std::string& metrics_line) {
  if (!events_ && !csv_) return;
  const StepScalars step = scalars_of(metrics_line);
  if (step.step == 0) return;
  if (events_) events_->append(scalars_event(wall_time(), step.step, step.scalars));
  if (csv_) csv_->append(csv_row(step));
}

void Watching::validation(const std::string& added) {
  const StepScalars step = scalars_of(added);
  if (events_ && step.step > 0) events_->append(scalars_event(wall_time(), step.step, step.scalars));
  if (csv_) csv_.emplace(open_csv(run_));
}

void Watching::text(i64 step, std::string_view tag, std::string_view text) {
  if (events_) events_->append(text_event(wall_time(), step, tag, text));
}

void Watching::histogram(i64 step, std::string_view tag, const Histogram& histogram) {
  if (events_) events_->append(histogram_event(wall_time(), step, tag, histogram));
}

std::vector<const GrowingFile*> Watching::files() const {
  std::vector<const GrowingFile*> all;
  for (const auto* file : {&events_, &csv_}) {
    if (*file) all.push_back(&**file);
  }
  return all;
}

}  // namespace spillway::app
