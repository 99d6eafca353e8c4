#include "app/saves.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace spillway::app {
namespace {

using Clock = std::chrono::steady_clock;

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
  session_.rank().begin_snapshot(save, patience_s);
  step_ = progress.step;
}

void Saves::poll() {
  const parallel::Snapshot* snapshot = session_.rank().snapshot();
  if (snapshot && snapshot->over()) tell(false);
}

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
    const std::string line = fmt::format("saved {}: blocked {}, durable after {}", checkpoint_path(folder_.path(), step).string(),
                                         format_duration(blocked_s_ + outcome.blocked_s), format_duration(before_s_ + outcome.seconds));
    console_.end_progress();
    console_.log(line);
    folder_.log(line);
  } catch (const std::exception& e) {
    if (must) throw;
    console_.warn(fmt::format("the checkpoint of step {} was not saved: {}; training goes on, the one before stands", step, e.what()));
  }
}

}  // namespace spillway::app
