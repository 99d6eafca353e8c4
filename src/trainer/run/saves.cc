#include "trainer/run/saves.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace spillway::trainer {
namespace {

constexpr size_t kUsualSteps = 5, kLeastUsual = 3;
constexpr i64 kUnusualSteps = 2;

// Returns the median of the values, or 0 if there are none.
double median(std::deque<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<i64>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double first_save_s(const Session& session, const RunFolder& folder, const Peers& peers) {
  const i64 bytes = checkpoint_bytes(session.model(), session.format()), nodes = peers.ranks() / std::max(1, peers.place().local_ranks);
  return expected_save_s(bytes, nodes, load_calibration().disk(folder.path()).write_bytes_per_s);
}

}  // namespace

Saves::Saves(Session& session, RunFolder& folder, Messages& messages, const Peers& peers, i64 keep, i64 first_step)
    : session_(session),
      folder_(folder),
      messages_(messages),
      peers_(peers),
      keep_(keep),
      saved_step_(newest_step(folder.path())),
      good_(first_step - 1),
      took_(first_save_s(session, folder, peers)) {}

void Saves::begin(const Progress& progress, double patience_s, bool must) {
  begin_ = Clock::now();
  finish(false);
  try {
    make_writer(progress);
  } catch (const AgreedError& e) {
    if (must) throw;
    return warn(progress.step, e);
  }
  const auto save = [this](const parallel::Snapshot::Tiles& tiles) {
    writer_->write(tiles);
    if (peers_.ranks() == 1) commit(std::array{writer_->written()});
  };
  before_s_ = blocked_s_ = seconds_since(begin_);
  longer_s_ = 0;
  session_.rank().begin_snapshot(save, patience_s);
  step_ = progress.step;
}

void Saves::make_writer(const Progress& progress) {
  writer_.reset();
  peers_.together([&] {
    if (peers_.first())
      writer_ = std::make_unique<CheckpointWriter>(folder_.path(), progress, session_.source(), session_.model(), session_.chosen());
  });
  const std::string folder = peers_.from_first(peers_.first() ? writer_->folder().string() : "");
  peers_.together([&] {
    if (!peers_.first()) writer_ = std::make_unique<CheckpointWriter>(folder, session_.model(), session_.chosen());
  });
}

// Commits the parts that the ranks have written as a checkpoint, and removes
// old checkpoints. With a single rank this runs on the snapshot's thread.
void Saves::commit(std::span<const std::string> written) {
  folder_.sync();
  writer_->commit(written);
  prune();
}

void Saves::prune() {
  if (!sound_) return void(spared_ = true);
  const i64 good = good_;
  spared_ = newest_step(folder_.path()) > good;
  prune_checkpoints(folder_.path(), keep_, kept_step_, good);
}

void Saves::judge(i64 good, bool sound) {
  good_ = std::max<i64>(good_, good);
  sound_ = sound;
  prune_spared();
}

// Removes old checkpoints that an earlier commit kept because the new checkpoint was not yet known to be good.
void Saves::prune_spared() {
  if (peers_.first() && spared_ && sound_ && !session_.rank().snapshot() && newest_step(folder_.path()) <= good_) prune();
}

std::vector<std::string> Saves::set_doubtful_aside() {
  std::vector<std::string> aside;
  peers_.together([&] {
    if (!peers_.first()) return;
    for (const std::filesystem::path& checkpoint : not_before(folder_.path(), {}, good_))
      aside.push_back(set_checkpoint_aside(checkpoint, "not-finite").string());
  });
  saved_step_ = peers_.most({peers_.first() ? newest_step(folder_.path()) : -1})[0];
  return aside;
}

void Saves::commit_together() {
  const std::vector<std::string> written = peers_.gather(writer_->written());
  peers_.together([&] {
    if (peers_.first()) commit(written);
  });
}

void Saves::stepped(double seconds) {
  if (const parallel::Snapshot* snapshot = session_.rank().snapshot()) {
    longer_s_ += std::max(0.0, seconds - median(usual_s_));
    if (peers_.most({!snapshot->over()})[0] == 0) tell(false);
  } else if (++plain_steps_ > kUnusualSteps) {
    usual_s_.push_back(seconds);
    if (usual_s_.size() > kUsualSteps) usual_s_.pop_front();
  }
}

// Returns by how many seconds the save lengthened the steps. While a step waits for the save, its disk transfers continue, so the rest of
// the step is shorter. The waiting time alone would therefore overstate the loss.
double Saves::steps_lost_s(double waited_s) const { return usual_s_.size() < kLeastUsual ? waited_s : std::min(waited_s, longer_s_); }

void Saves::finish(bool must) {
  parallel::Snapshot* snapshot = session_.rank().snapshot();
  if (!snapshot) return;
  const auto start = Clock::now();
  peers_.together([&] { snapshot->drain(); });
  blocked_s_ += seconds_since(start);
  tell(must);
}

void Saves::tell(bool must) {
  const parallel::Snapshot::Outcome outcome = session_.rank().snapshot()->outcome();
  session_.rank().end_snapshot();
  const i64 step = std::exchange(step_, -1);
  try {
    peers_.together([&] {
      if (outcome.error) std::rethrow_exception(outcome.error);
    });
    if (peers_.ranks() > 1) commit_together();
    took_.add(outcome.writing_s);
    saved_step_ = step_ = step;
    const double durable_s = peers_.ranks() > 1 ? seconds_since(begin_) : before_s_ + outcome.seconds;
    const std::string line = fmt::format("saved {}: blocked {}, durable after {}", checkpoint_path(folder_.path(), step).string(),
                                         format_duration(blocked_s_ + steps_lost_s(outcome.blocked_s)), format_duration(durable_s));
    messages_.end_progress();
    messages_.log(line);
    if (saved_) saved_(step);
    prune_spared();
  } catch (const AgreedError& e) {
    writer_.reset();
    if (must) throw;
    warn(step, e);
  }
}

void Saves::warn(i64 step, const std::exception& error) {
  messages_.warn(fmt::format("the checkpoint of step {} was not saved: {}; training continues, and the checkpoint before it is kept", step,
                             error.what()));
}

}  // namespace spillway::trainer
