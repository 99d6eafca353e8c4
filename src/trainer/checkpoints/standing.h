// Describes a run between two steps: its best validation, the number of validations since then, whether a validation is still due, and
// whether the last losses were finite. It is stored in every checkpoint's manifest and with each commit on nvme, so that a run that was
// stopped and resumed makes the same decisions as one that was not. A value.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/checkpoints/best.h"

namespace spillway::trainer {

struct Standing {
  std::optional<Best> best;      // the lowest validation loss so far, and its step
  i64 no_better = 0;             // number of validations after `best` whose loss was not lower
  std::string validated_on;      // identifies the validation data; losses on other data cannot be compared
  bool owes_validation = false;  // the validation after the last step was not made, or was not finished
  i64 skipped_in_a_row = 0;      // number of consecutive steps, up to the last one, whose gradients were not finite
  bool unsound = false;   // the last step's loss or gradient norm was not finite, and the cause was not fp16's search for a loss scale
  bool diverged = false;  // the run ended because its numbers were not finite; no run should resume from this state

  bool operator==(const Standing&) const = default;

  /// Records the loss of a validation after `step`. Returns whether it is the lowest so far; NaN and infinity never are.
  bool judge(i64 step, double loss);
  /// To be called before validations on the data that `data` identifies: forgets the results of validations on other data. Returns whether
  /// there were such results.
  bool validates_on(const std::string& data);
};

/// Convert a Standing to JSON and back. If `from` lacks a value, or has it in an invalid form, the result has the value of a new run.
nlohmann::json to_json(const Standing& standing);
Standing standing_of(const nlohmann::json& from);

}  // namespace spillway::trainer
