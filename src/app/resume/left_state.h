// A run's newest state may lie on nvme alone. Before a start touches anything it is compared with what this start would do: a run that has
// no checkpoint must not be begun anew over it because a flag is another one. Looks at the scratch paths, opens and writes nothing. One
// rank's.
#pragma once
#include <string>
#include <vector>

#include "app/checkpoints/checkpoint.h"
#include "app/run/session.h"
#include "app/run/start.h"

namespace spillway::app {

struct LeftState {
  std::string note;    // to be said; empty: nothing
  i64 save_step = -1;  // of a state that has to become a checkpoint first, in its own layout; -1: none
};

/// Of a start of `config` with the session's plan. Error(usage), as check_same_numbers() has it, when the state of the run in --out was
/// made with other values that change numbers (`same`: as number_changes()), and when the run has no checkpoint and this plan would not
/// find the state, whose layout is another. Where --allow-change makes it another one, it has to be saved first. `from_checkpoint`: of the
/// checkpoint there is to go on from; zeros without one.
LeftState check_left_state(const Session& session, const TrainConfig& config, const Progress& from_checkpoint,
                           const std::vector<std::string>& same);

/// The run in --out as it was started, to its step `step` and no further: it goes on from the state on nvme, and saves it.
TrainConfig saving_config(const TrainConfig& config, i64 step);

/// Says what opening the store did, and what becomes of a state that this run does not go on from.
void tell_of_nvme(Session& session, const TrainConfig& config, Console& console, const Recovery& recovery);

}  // namespace spillway::app
