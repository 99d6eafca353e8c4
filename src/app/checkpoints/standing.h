// The health of a run between two steps: its best validation and how many since were no better, whether a validation is
// still to be made, and whether the last losses were finite. It is part of the run's state, in every checkpoint's manifest and in each
// commit on nvme, so that a run that was stopped comes to the same decisions as one that was not. A value.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/checkpoints/best.h"

namespace spillway::app {

struct Standing {
  std::optional<Best> best;      // the lowest validation loss so far, and its step
  i64 no_better = 0;             // validations since then whose loss was not lower
  std::string validated_on;      // what these were made on: another one's losses cannot be compared with them
  bool owes_validation = false;  // the validation after this step was not made, or not to its end
  i64 skipped_in_a_row = 0;      // steps up to this one whose gradients were not finite
  bool unsound = false;          // this step's loss or norm was not finite, and not because fp16 looks for its loss scale
  bool diverged = false;         // the run ended because of that: nothing should go on from this state

  bool operator==(const Standing&) const = default;

  /// Takes the loss of a validation after `step`. Returns whether it is the best so far; NaN and infinity never are.
  bool judge(i64 step, double loss);
  /// Before validations on these data: forgets those that were made on others. Returns whether there were any.
  bool validates_on(const std::string& data);
};

/// As JSON, and back. What `from` does not have, or has in a form that no run writes, is as in a new run.
nlohmann::json to_json(const Standing& standing);
Standing standing_of(const nlohmann::json& from);

}  // namespace spillway::app
