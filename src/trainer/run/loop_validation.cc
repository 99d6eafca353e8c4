// Implements the validations of a training run: when they are made, which one is the best, and what happens to an interrupted one.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"
#include "trainer/node/stop.h"
#include "trainer/node/working.h"
#include "trainer/run/held_out.h"
#include "trainer/run/loop.h"
#include "trainer/run/metrics.h"

namespace spillway::trainer {
namespace {

// Returns a short text that identifies the validation data and how much of it is used.
std::string validation_data(const TrainConfig& config, const RunData& data) {
  if (!data.held_out) return "";
  const std::string all =
      fmt::format("{} {} {}", data.held_out->fingerprint(), config.validation_fraction, config.validation_steps.value_or(0));
  return fmt::format("{:08x}", crc32c(std::as_bytes(std::span(all))));
}

}  // namespace

bool TrainingLoop::validates_after(i64 step) const {
  if (!data_.held_out) return false;
  return step == *config_.steps || (config_.validate_every && step % *config_.validate_every == 0);
}

void TrainingLoop::validate(StepReport& report) {
  const Working working(messages_, fmt::format("validating after step {}", progress_.step));
  set_answers("this part of the validation");
  accounts_.settle();
  const i64 all = held_out_micro_batches(*data_.held_out, config_.micro_batch_rows());
  const i64 counted = std::min(all, config_.validation_steps.value_or(all));
  const auto begin = Clock::now();
  auto last = begin;
  const auto breaks = [&] {
    ahead_.micro_batch.add(seconds_since(std::exchange(last, Clock::now())));
    return breaks_off(ahead_.micro_batch.seconds());
  };
  const HeldOutLoss loss = held_out_loss(
      session_.rank(), session_.mesh(), peers_, *data_.held_out, counted, [](const HeldOutLoss&) {}, breaks);
  set_answers("this step");
  if (loss.micro_batches < counted) return;
  ahead_.validation.add(seconds_since(begin));
  last_validation_ = report.validation_loss = loss.mean();
  last_accuracy_ = report.validation_accuracy = loss.accuracy();
  progress_.standing.owes_validation = false;
  judge(report);
}

// A validation that is interrupted a second time is skipped. Otherwise a run
// whose validation takes longer than its time limit would never make progress.
std::optional<int> TrainingLoop::make_up_validation() {
  if (!std::exchange(progress_.standing.owes_validation, false) || !data_.held_out) return {};
  messages_.log(fmt::format("running the validation after step {} now, because an earlier start did not finish it", progress_.step));
  StepReport report;
  report.result.loss = std::numeric_limits<double>::quiet_NaN();  // no training step was made in this process, so there is no training loss
  validate(report);
  validated_late_ = true;
  if (!report.validation_loss) {
    stands(fmt::format("the validation after step {} was interrupted again: it is skipped", progress_.step));
    return stop(peers_.most({stop_requested()})[0] != 0 ? "stopped by " + signal_text() : "stopped");
  }
  judge_weights(report);
  warn_of(folder_.add_validation(progress_.step, validation_json(progress_.step, *report.validation_loss, report.validation_accuracy)));
  show_validation(report);
  tell_validation(report);
  if (to_keep_) saves_.saved_step() == progress_.step ? name_best() : save(false);
  return {};
}

// Finds the best checkpoint by best.json, and protects the checkpoint from removal, whether or not this process is
// asked to keep the best one. If best.json is damaged, the run's own state says which checkpoint the file named.
void TrainingLoop::find_best() {
  Standing& standing = progress_.standing;
  std::string spoilt;
  peers_.together([&] {
    try {
      kept_ = read_best(folder_.path());
    } catch (const Error& e) {
      spoilt = e.what();
    }
    if (spoilt.empty() || !standing.best || !std::filesystem::exists(checkpoint_path(folder_.path(), standing.best->step))) return;
    kept_ = standing.best;
    if (peers_.first()) write_best(folder_.path(), *kept_);
  });
  if (!spoilt.empty())
    messages_.warn(fmt::format("{}; {}", spoilt,
                               kept_ ? fmt::format("best.json is rewritten: the run's best checkpoint is that of step {}", kept_->step)
                                     : "no older checkpoint counts as the best"));
  if (kept_) saves_.keep_step(kept_->step);
  if (!data_.held_out) return;
  // older programs recorded the best validation only in best.json
  if (kept_ && !standing.best && standing.validated_on.empty()) standing.best = kept_;
  if (!standing.validates_on(validation_data(config_, data_))) return;
  messages_.log("the earlier validations used other data: the best loss and the patience count start again from here");
  if (kept_) kept_->loss = std::numeric_limits<double>::infinity();
}

void TrainingLoop::judge(const StepReport& report) {
  const double loss = *report.validation_loss;
  is_best_ = progress_.standing.judge(progress_.step, loss);
  // the best checkpoint that is saved or is being saved
  const std::optional<Best>& before = to_keep_ && saves_.has(to_keep_->step) ? to_keep_ : kept_;
  if (callbacks_.keep_best && std::isfinite(loss) && (!before || loss < before->loss)) to_keep_ = Best{progress_.step, loss};
}

// Called once the best checkpoint is durable. Until then the previous best checkpoint is kept and best.json names it.
void TrainingLoop::name_best() {
  peers_.together([&] {
    if (peers_.first()) write_best(folder_.path(), *to_keep_);
  });
  kept_ = to_keep_;
  saves_.keep_step(kept_->step);
}

// A finite training loss shows that the weights before the step were good. A finite validation loss shows that the weights after the step
// are good.
void TrainingLoop::judge_weights(const StepReport& r) {
  const bool validated = r.validation_loss && std::isfinite(*r.validation_loss);
  if (validated) progress_.standing.unsound = false;
  const i64 good = validated ? progress_.step : std::isfinite(r.result.loss) ? progress_.step - 1 : -1;
  saves_.judge(good, !progress_.standing.unsound && (validated || !r.validation_loss));
}

void TrainingLoop::tell_validation(const StepReport& r) const {
  if (peers_.first() && callbacks_.on_validate && r.validation_loss)
    callbacks_.on_validate({progress_.step, *r.validation_loss, r.validation_accuracy, is_best_});
}

void TrainingLoop::show_validation(const StepReport& r) {
  if (!r.validation_loss) return;
  const std::string accuracy = r.validation_accuracy ? fmt::format("  accuracy {:.4f}", *r.validation_accuracy) : "";
  stands(fmt::format("  validation loss {:.4f}{}", *r.validation_loss, accuracy));
}

}  // namespace spillway::trainer
