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

// Says what was trained, on how much data, and where the result is.
std::string TrainingLoop::trained_text() const {
  const Trained o = trained();
  std::string what = o.model;
  if (const auto& lora = session_.source().config.lora) {
    what = fmt::format("adapters of rank {} on {} of {}", lora->rank,
                       lora->targets.empty() ? "all-linear" : fmt::format("{}", fmt::join(lora->targets, ",")), o.model);
  }
  std::string text = fmt::format("  trained: {}, {} of {} parameters\n", what, o.trained, o.parameters);
  const char* plural = o.steps == 1 ? "" : "s";
  if (!session_.model().reads_tokens()) {
    text += fmt::format("  {}: {} in {} step{}, {:.0f}/s", unit(), o.tokens, o.steps, plural, o.per_s(o.tokens));
  } else {
    text += fmt::format("  tokens: {} in {} step{} ({} of them contribute to the loss), {:.0f}/s", o.tokens, o.steps, plural, o.counted,
                        o.per_s(o.tokens));
  }
  if (o.positions > o.tokens) text += fmt::format("; with padding {} positions, {:.0f}/s", o.positions, o.per_s(o.positions));
  text += o.tokens_in_all > o.tokens ? fmt::format("; including earlier starts {}\n", o.tokens_in_all) : "\n";
  if (o.checkpoint.empty()) return text + "  result: not saved (--no-final-checkpoint)\n";
  text += "  result: " + o.checkpoint + "\n";
  return o.python.empty() ? text : text + "  in Python: " + o.python + "\n";
}

void TrainingLoop::finish(const StepReport& last) {
  accounts_.settle();
  const i64 unplanned = unplanned_bytes();
  const Audit& audit = accounts_.audit();
  const parallel::TierBytes& moved = accounts_.moved();
  const i64 steps = std::max<i64>(1, progress_.step - first_step_);
  messages_.end_progress();
  if (messages_.json()) {
    return messages_.result(to_json(Summary{progress_.step, last.result, last_validation_, last_accuracy_, folder_.path().string(),
                                            trained(), last_wear_, profile_ ? profile_rows(calibration()) : std::vector<ProfileRow>(),
                                            accounts_.audit_rows(), audit.bound_by(), unplanned, accounts_.contention()}));
  }
  std::string text = fmt::format("done: step {}", progress_.step);
  if (progress_.step > first_step_) text += fmt::format(", loss {:.4f}", last.result.loss);
  if (last_validation_) text += fmt::format(", validation loss {:.4f}", *last_validation_);
  if (last_accuracy_) text += fmt::format(", accuracy {:.4f}", *last_accuracy_);
  text += fmt::format(", {} in all\n", format_duration(seconds_since(start_)));
  if (!messages_.quiet()) text += trained_text();
  text += fmt::format("  peak memory: process {}, device {} of {}, host {}; on nvme {}\n", format_bytes(process_memory().peak_bytes),
                      format_bytes(session_.device_pool().peak_bytes()), format_bytes(session_.device_pool().budget_bytes()),
                      format_bytes(session_.host_pool().peak_bytes()), format_bytes(session_.rank().state().nvme_bytes()));
  text += fmt::format("  moved per step: {} read from host and {} written there, {} read from nvme and {} written there\n",
                      format_bytes(moved.read[1] / steps), format_bytes(moved.written[1] / steps), format_bytes(moved.read[2] / steps),
                      format_bytes(moved.written[2] / steps));
  if (last_wear_.bytes_per_step > 0) text += "  written to nvme: " + to_text(last_wear_, config_.run->endurance_bytes) + "\n";
  if (!audit.empty()) {
    const auto stripes = static_cast<i64>(session_.nvme().paths.size());
    text += to_text(accounts_.audit_rows(), audit.steps(), accounts_.contention());
    text += "  " + audit.verdict(levers_of(session_.chosen(), session_.model(), session_.prediction().rates(), stripes)) + "\n";
  }
  text += "  run folder: " + folder_.path().string();
  if (profile_) text += "\n" + profile_text();
  messages_.result(text);
}

}  // namespace spillway::trainer
