// Writes the summary of a training run at its end.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.h"
#include "trainer/checkpoints/python_line.h"
#include "trainer/node/process_memory.h"
#include "trainer/plan/freeze.h"
#include "trainer/run/loop.h"
#include "trainer/run/metrics.h"
#include "trainer/settings/run_settings.h"
#include "trainer/settings/text.h"
#include "trainer/settings/weighted_path.h"

namespace spillway::trainer {

Calibration TrainingLoop::calibration() const {
  Calibration node = load_calibration();
  if (!node.warning.empty()) messages_.warn(node.warning);
  return node;
}

std::vector<ProfileRow> TrainingLoop::profile_rows(const Calibration& node) const {
  std::vector<DiskRates> disks;
  for (const ScratchPath& path : session_.nvme().paths) disks.push_back(node.disk(path.path));
  return profile_->rows(node, disks, session_.nvme().shares.weights);
}

std::string TrainingLoop::profile_text() const {
  const Calibration node = calibration();
  return to_text(profile_rows(node), node.measured);
}

i64 TrainingLoop::unplanned_bytes() const {
  double sum = 0;
  for (const auto& rank : peers_.gather(std::vector{static_cast<double>(accounts_.unplanned_bytes())})) sum += rank[0];
  return static_cast<i64>(sum);
}

Trained TrainingLoop::trained() const {
  Trained made;
  made.model = session_.source().name;
  made.parameters = session_.model().parameter_elems();
  made.trained = made.parameters - frozen_elems(session_.model());
  made.steps = progress_.step - first_step_;
  made.tokens = progress_.tokens - first_tokens_;
  made.positions = made.steps * positions_per_step();
  made.counted = counted_targets_;
  made.seconds = seconds_since(start_);
  made.tokens_in_all = progress_.tokens;
  if (saves_.saved_step() == progress_.step) {
    const std::filesystem::path checkpoint = checkpoint_path(folder_.path(), progress_.step);
    made.checkpoint = checkpoint.string();
    if (!session_.source().own)
      made.python = python_line(session_.source().config, session_.source().config.lora.has_value(), "hf", checkpoint);
  }
  return made;
}

std::string TrainingLoop::summary_text(const StepReport& last) const {
  std::string text = fmt::format("done: step {}", progress_.step);
  if (first_loss_) text += fmt::format(", loss {:.4f}", last.result.loss);
  if (progress_.step > first_step_ + 1) text += fmt::format(" ({:.4f} at step {})", *first_loss_, first_step_ + 1);
  if (last_validation_) text += fmt::format(", validation loss {:.4f}", *last_validation_);
  if (last_accuracy_) text += fmt::format(", accuracy {:.4f}", *last_accuracy_);
  text += "\n" + trained_text() + time_text() + memory_text();
  if (config_.run->endurance_bytes) text += wear_text("  ");
  return text + result_text();
}

// Says on how much data this process trained, how long it took and how fast it was.
std::string TrainingLoop::trained_text() const {
  const Trained o = trained();
  const double outside = o.seconds > 0 ? 100 * (1 - stepping_s_ / o.seconds) : 0;
  std::string text = fmt::format("  trained: {} {} in {} step{}, {}{}, {:.0f} {}/s", o.tokens, unit(), o.steps, o.steps == 1 ? "" : "s",
                                 format_duration(o.seconds), outside >= 0.5 ? fmt::format(" ({:.0f} % outside steps)", outside) : "",
                                 o.per_s(o.tokens), unit());
  if (session_.model().reads_tokens() && o.counted != o.tokens) text += fmt::format("; {} of them contribute to the loss", o.counted);
  if (o.positions > o.tokens) text += fmt::format("; with padding {} positions, {:.0f}/s", o.positions, o.per_s(o.positions));
  return text + (o.tokens_in_all > o.tokens ? fmt::format("; including earlier starts {}\n", o.tokens_in_all) : "\n");
}

std::string TrainingLoop::time_text() const {
  if (accounts_.audit().empty()) return "";
  const Contention contention = accounts_.contention();
  return "  time: " + accounts_.audit().brief() + (contention.busy() ? "; the machine was busy: " + contention.text() : "") + "\n";
}

std::string TrainingLoop::memory_text() const {
  const std::array<i64, offload::kTiers> planned = session_.chosen().own_bytes(),
                                         peak = {session_.device_pool().peak_bytes(), session_.host_pool().peak_bytes(),
                                                 session_.rank().state().nvme_bytes()};
  std::string text;
  bool all_as_planned = true;
  for (size_t t = 0; t < offload::kTiers; ++t) {
    if (planned[t] == 0 && peak[t] == 0) continue;
    const bool as_planned = format_bytes(peak[t]) == format_bytes(planned[t]);
    text += fmt::format("{} {} {}", text.empty() ? "" : ",", to_string(static_cast<Tier>(t)), format_bytes(peak[t]));
    if (!as_planned) text += fmt::format(" (planned {})", format_bytes(planned[t]));
    all_as_planned &= as_planned;
  }
  const i64 foreign = session_.chosen().foreign_bytes;
  if (all_as_planned) text += ", as planned";
  if (foreign > 0) text += fmt::format(", and PyTorch's, planned {}", format_bytes(foreign));
  return fmt::format("  peak memory:{}; process {}\n", text, format_bytes(process_memory().peak_bytes));
}

// Says what the run costs the drives; --endurance asks for it.
std::string TrainingLoop::wear_text(const char* indent) const {
  return last_wear_.bytes_per_step > 0 ? fmt::format("{}written to nvme: {}\n", indent, to_text(last_wear_, config_.run->endurance_bytes))
                                       : "";
}

std::string TrainingLoop::result_text() const {
  const std::string checkpoint = trained().checkpoint;
  return fmt::format("  result: {}; next: {}",
                     checkpoint.empty() ? folder_.path().string() + ", without weights (--no-final-checkpoint)" : checkpoint,
                     next_command());
}

// Returns the command that the summary suggests next: one that tries the trained model, or a report if there are no weights to try.
std::string TrainingLoop::next_command() const {
  const std::string run = shell_word(folder_.path().string());
  if (session_.source().own || trained().checkpoint.empty()) return "spillway report " + run;
  if (session_.model().reads_images())
    return fmt::format(
        "spillway evaluate --model {} --data {}", run,
        shell_word(config_.validation_data.empty() ? weighted_paths(config_.data).paths.front() : config_.validation_data.front()));
  return fmt::format("spillway generate --model {} --prompt {}", run,
                     shell_word(config_.run->prompt.empty() ? "The" : config_.run->prompt));
}

std::string TrainingLoop::audit_text() const {
  const Trained o = trained();
  std::string what = o.model;
  if (const auto& lora = session_.source().config.lora) {
    what = fmt::format("adapters of rank {} on {} of {}", lora->rank,
                       lora->targets.empty() ? "all-linear" : fmt::format("{}", fmt::join(lora->targets, ",")), o.model);
  }
  std::string text = fmt::format("trained parameters: {}, {} of {}\n", what, o.trained, o.parameters);
  if (!o.python.empty()) text += "in Python: " + o.python + "\n";
  const parallel::TierBytes& moved = accounts_.moved();
  const i64 steps = std::max<i64>(1, progress_.step - first_step_);
  text += fmt::format("moved per step: {} read from host and {} written there, {} read from nvme and {} written there\n",
                      format_bytes(moved.read[1] / steps), format_bytes(moved.written[1] / steps), format_bytes(moved.read[2] / steps),
                      format_bytes(moved.written[2] / steps));
  if (!config_.run->endurance_bytes) text += wear_text("");
  if (const Audit& audit = accounts_.audit(); !audit.empty()) {
    const auto stripes = static_cast<i64>(session_.nvme().paths.size());
    text += to_text(accounts_.audit_rows(), audit.steps(), accounts_.contention());
    text += audit.verdict(levers_of(session_.chosen(), session_.model(), session_.prediction().rates(), stripes)) + "\n";
  }
  return text;
}

void TrainingLoop::finish(const StepReport& last) {
  accounts_.settle();
  const i64 unplanned = unplanned_bytes();
  messages_.end_progress();
  if (messages_.json()) {
    return messages_.result(to_json(Summary{progress_.step, last.result, last_validation_, last_accuracy_, folder_.path().string(),
                                            trained(), last_wear_, profile_ ? profile_rows(calibration()) : std::vector<ProfileRow>(),
                                            accounts_.audit_rows(), accounts_.audit().bound_by(), unplanned, accounts_.contention()}));
  }
  const std::string summary = summary_text(last), audit = audit_text();
  const std::string profile = profile_ ? profile_text() + "\n" : "";
  if (messages_.quiet()) return folder_.log(audit + profile + summary);
  if (!config_.run->audit) folder_.log(audit);
  messages_.result((config_.run->audit ? audit : "") + profile + summary);
}

}  // namespace spillway::trainer
