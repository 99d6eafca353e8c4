// Protects the state of a run that exists on nvme only. A run's newest state may be there and in no checkpoint, so before a start of the
// run changes anything, the state is compared with what the start would do. Otherwise a run without a checkpoint would begin anew and
// overwrite the state just because a flag differs. The checking functions only read the scratch paths; each rank checks its own state.
#pragma once
#include <string>
#include <vector>

#include "trainer/checkpoints/checkpoint.h"
#include "trainer/run/session.h"
#include "trainer/run/start.h"

namespace spillway::trainer {

struct LeftState {
  std::string note;    // a line for the log; may be empty
  i64 save_step = -1;  // step of a state on nvme that must first be saved as a checkpoint (saving_config); -1: none
};

/// Checks a start of `config` with the session's plan against the state that the run in --out left on nvme.
/// `from_checkpoint` is the progress of the checkpoint to continue from; all zeros if there is none. `same` lists
/// the keys whose files have the same contents at another path, as in number_changes(). Throws Error(usage) in two
/// cases: as check_same_numbers() does, if the state was made with other values that change numbers; and if the run
/// has no checkpoint and this start could not use the state, for example because its plan has another layout. If the
/// start differs only because of --allow-change, the result asks for the state to be saved as a checkpoint first.
LeftState check_left_state(const Session& session, const TrainConfig& config, const Progress& from_checkpoint,
                           const std::vector<std::string>& same);

/// Returns the configuration with which the run in --out was started, but with `step` as its last step. A start with
/// this configuration continues from the state of `step` on nvme, trains no step, and saves the state as a checkpoint.
TrainConfig saving_config(const TrainConfig& config, i64 step);

/// Logs what happened when the state files on nvme were opened. If this run does
/// not continue from the state in them, also logs what happens to that state.
void tell_of_nvme(Session& session, const TrainConfig& config, Messages& messages, const Recovery& recovery);

}  // namespace spillway::trainer
