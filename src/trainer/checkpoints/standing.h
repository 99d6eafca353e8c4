// Standing describes a run between two steps: its best validation, the number of validations since then, whether a validation is still due,
// and whether the last losses were finite. It is stored in every checkpoint's manifest and with every step's state on nvme, so that a run
// that is stopped and resumed makes the same decisions as an uninterrupted run. Standing is a value.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/checkpoints/best.h"

namespace spillway::trainer {

struct Standing {
  std::optional<Best> best;      // the lowest validation loss so far, and the step of its validation
  i64 no_better = 0;             // number of validations after `best` whose loss was not lower
  std::string validated_on;      // identifies the validation data; losses on different data cannot be compared
  bool owes_validation = false;  // true if the validation after the last step was not made or not finished
  i64 skipped_in_a_row = 0;      // number of consecutive steps, ending with the last step, whose gradients were not finite
  bool unsound = false;          // last loss or gradient norm was not finite, and not because fp16 searched for a loss scale
  bool diverged = false;         // true if the run ended because its numbers were not finite; no run should resume from such a state

  bool operator==(const Standing&) const = default;

  /// Records the loss of a validation after `step`. Returns whether this loss is the lowest so far. NaN and infinity never are.
  bool judge(i64 step, double loss);
  /// Forgets the results of validations on other data than `data` identifies.
  /// Returns whether there were such results. Must be called before validations.
  bool validates_on(const std::string& data);
};

/// to_json() converts a Standing to JSON, standing_of() converts it back. If a value is missing in `from` or invalid, the result has the
/// value of a new run.
nlohmann::json to_json(const Standing& standing);
Standing standing_of(const nlohmann::json& from);

}  // namespace spillway::trainer
