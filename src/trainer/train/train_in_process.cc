// Trains in this process, for programs that use the library.
#include "base/error.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/ranks/on_ranks.h"
#include "trainer/settings/given.h"
#include "trainer/train/train.h"

namespace spillway::trainer {

void check_run_settings(const TrainConfig& config) {
  if (config.out.empty()) throw Error(ErrorCode::usage, "[training] expected --out FOLDER, where the run is written");
  if (config.rehearse) throw Error(ErrorCode::usage, "[training] --rehearse works only on the command line");
}

void check_training(TrainConfig& config) {
  check_own_settings(config, Host{});
  check_run_settings(config);
}

TrainingResult train(const TrainConfig& config, const OwnParts& own, const TrainCallbacks& callbacks, Messages& messages) {
  const auto work = [&](const Peers& peers) { return run_train(config, messages, peers, callbacks, own); };
  const auto start = []() -> int {
    throw Error(ErrorCode::usage, "[training] expected a launcher (srun, mpirun, torchrun) for several ranks, or --communicator local");
  };
  const int status = on_ranks(config, messages, Host{}, work, start);
  TrainingResult result{status == 0, config.out, {}};
  if (newest_step(result.run) >= 0) result.checkpoint = find_checkpoint(result.run, "last");
  return result;
}

}  // namespace spillway::trainer
