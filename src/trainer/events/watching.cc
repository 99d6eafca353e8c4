#include "trainer/events/watching.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <span>

#include "data/files/beside.h"
#include "trainer/events/event.h"
#include "trainer/events/lines.h"
#include "trainer/events/lines_backward.h"
#include "trainer/events/scalars.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBegin = "events.out.tfevents.";
constexpr size_t kDigits = 10;
constexpr i64 kMostSeconds = 9'999'999'999;
constexpr size_t kMostWaiting = 16 * kMiB;

double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Returns the seconds since 1970 in the name of an event file. Returns -1 for any other name.
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

// Writes metrics.csv anew from all lines of metrics.jsonl.
void make_csv(const fs::path& run) {
  constexpr size_t kWrittenAtOnce = 1 * kMiB;
  data::AtomicFile csv(run / "metrics.csv", data::Existing::overwrite);
  std::string rows = csv_header();
  i64 written = 0;
  const auto write = [&] {
    csv.file().write(written, std::as_bytes(std::span(rows)));
    written += std::ssize(rows);
    rows.clear();
  };
  Lines lines(run / "metrics.jsonl");
  for (Lines::Line line; lines.next(line);) {
    if (const StepScalars step = scalars_of(line.text); line.ends && step.step > 0) rows += csv_row(step);
    if (rows.size() > kWrittenAtOnce) write();
  }
  write();
  csv.commit();
}

// Opens metrics.csv and removes the rows after that of `step`, the last step in metrics.jsonl. If `step` is 0, all
// rows are removed. If the file has other columns or no row of `step`, it is first made again from metrics.jsonl.
GrowingFile open_csv(const fs::path& run, i64 step) {
  const fs::path path = run / "metrics.csv";
  std::error_code unseen;
  const std::string header = csv_header();
  for (bool made = false;; made = true) {
    if (made || !fs::exists(path, unseen)) make_csv(run);
    data::File csv = data::File::open_to_write(path);
    std::string begin(header.size(), ' ');
    if (csv.size_bytes() >= std::ssize(begin)) csv.read(0, std::as_writable_bytes(std::span(begin)));
    const LastLine last = last_line_of(csv, step, step_of_row);
    if (!made && (begin != header || last.step != step)) continue;
    const i64 bytes = last.step > 0 ? last.end : std::ssize(header);
    csv.resize(bytes);
    return {std::move(csv), bytes};
  }
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
      missing_.push_back(fmt::format("the run continues without {}: {}", name, error.what()));
    }
  };
  open(wish.tensorboard, events_, "event files for TensorBoard", [&] { return open_events(run, step, config); });
  open(wish.metrics_csv || fs::exists(run / "metrics.csv"), csv_, "metrics.csv", [&] { return open_csv(run, step); });
}

void Watching::line(const std::string& metrics_line) {
  if (!events_ && !csv_) return;
  const StepScalars step = scalars_of(metrics_line);
  if (step.step == 0) return;
  if (events_) events_->append(scalars_event(wall_time(), step.step, step.scalars));
  if (csv_) csv_->append(csv_row(step));
}

void Watching::validation(const std::string& added, const std::string& line) {
  const StepScalars step = scalars_of(added);
  if (events_ && step.step > 0) events_->append(scalars_event(wall_time(), step.step, step.scalars));
  if (!csv_) return;
  if (csv_->waits()) return;  // earlier rows still wait for disk space, so this row must not be written in their place
  const StepScalars whole = scalars_of(line);
  try {
    data::File csv = data::File::open_to_write(run_ / "metrics.csv");
    const LastLine row = last_line_of(csv, whole.step, step_of_row);
    csv_.emplace(std::move(csv), row.step == whole.step ? row.begin : row.end);
  } catch (const std::exception&) {
    return;  // another program removed or replaced metrics.csv; the still open file receives later rows
  }
  csv_->append(csv_row(whole));
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

}  // namespace spillway::trainer
