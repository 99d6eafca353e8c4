#include "app/saves.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace spillway::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kUsualSteps = 5, kLeastUsual = 3;
constexpr i64 kWarmUpSteps = 2;

// 0 of none.
double median(std::deque<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<i64>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

void Saves::begin(const Progress& progress, double patience_s) {
  const auto start = Clock::now();
  finish(false);
  const auto save = [this, progress](const parallel::Snapshot::Tiles& tiles) {
    save_checkpoint(folder_.path(), progress, session_.source().config, session_.model(), session_.chosen(), tiles);
    prune_checkpoints(folder_.path(), keep_);
  };
  before_s_ = blocked_s_ = seconds_since(start);
  longer_s_ = 0;
  session_.rank().begin_snapshot(save, patience_s);
  step_ = progress.step;
}

void Saves::stepped(double seconds) {
  if (const parallel::Snapshot* snapshot = session_.rank().snapshot()) {
    longer_s_ += std::max(0.0, seconds - median(usual_s_));
    if (snapshot->over()) tell(false);
  } else if (++plain_steps_ > kWarmUpSteps) {
    usual_s_.push_back(seconds);
    if (usual_s_.size() > kUsualSteps) usual_s_.pop_front();
  }
}

// While a Step waits for the save its reads and writes go on, which the rest of the step then has done.
double Saves::steps_lost_s(double waited_s) const { return usual_s_.size() < kLeastUsual ? waited_s : std::min(waited_s, longer_s_); }

void Saves::finish(bool must) {
  parallel::Snapshot* snapshot = session_.rank().snapshot();
  if (!snapshot) return;
  const auto start = Clock::now();
  snapshot->drain();
  blocked_s_ += seconds_since(start);
  tell(must);
}

void Saves::tell(bool must) {
  const parallel::Snapshot::Outcome outcome = session_.rank().snapshot()->outcome();
  session_.rank().end_snapshot();
  const i64 step = std::exchange(step_, outcome.error ? -1 : step_);
  try {
    if (outcome.error) std::rethrow_exception(outcome.error);
    seconds_ = outcome.writing_s;
    const std::string line =
        fmt::format("saved {}: blocked {}, durable after {}", checkpoint_path(folder_.path(), step).string(),
                    format_duration(blocked_s_ + steps_lost_s(outcome.blocked_s)), format_duration(before_s_ + outcome.seconds));
    console_.end_progress();
    console_.log(line);
    folder_.log(line);
  } catch (const std::exception& e) {
    if (must) throw;
    console_.warn(fmt::format("the checkpoint of step {} was not saved: {}; training goes on, the one before stands", step, e.what()));
  }
}

}  // namespace spillway::app
