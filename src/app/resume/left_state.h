// Protects a run's state that exists on nvme only. The newest state of a run may be there, and in no checkpoint. Before a start changes
// anything, the state is compared with what this start would do, so that a run without a checkpoint is not begun anew over it just because
// a flag differs. The functions that check only look at the scratch paths; each rank checks its own.
#pragma once
#include <string>
#include <vector>

#include "app/checkpoints/checkpoint.h"
#include "app/run/session.h"
#include "app/run/start.h"

namespace spillway::app {

struct LeftState {
  std::string note;    // a line for the log; may be empty
  i64 save_step = -1;  // step of a state that must first be saved as a checkpoint, under its own configuration; -1: none
};

/// Checks a start of `config` with the session's plan against the state that the run in --out left on nvme. `from_checkpoint` is the
/// progress of the checkpoint to continue from; zeros if there is none. `same` are the keys that name the same contents by another path, as
/// in number_changes(). Throws Error(usage), as check_same_numbers() does, if the state was made with other values that change numbers; and
/// if the run has no checkpoint and this plan, whose layout differs, would not find the state. If --allow-change is what makes the
/// difference, the result asks for the state to be saved first.
LeftState check_left_state(const Session& session, const TrainConfig& config, const Progress& from_checkpoint,
                           const std::vector<std::string>& same);

/// Returns the configuration with which the run in --out was started, but with `step` as its last step: such a run continues from the state
/// on nvme and saves it as a checkpoint.
TrainConfig saving_config(const TrainConfig& config, i64 step);

/// Logs what opening the store on nvme did, and what happens to a state from which this run does not continue.
void tell_of_nvme(Session& session, const TrainConfig& config, Console& console, const Recovery& recovery);

}  // namespace spillway::app
