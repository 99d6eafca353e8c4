#include "app/training.h"

#include "app/checkpoints/checkpoint.h"
#include "app/commands/commands.h"
#include "app/deepspeed/deepspeed.h"
#include "app/on_ranks.h"
#include "app/train/train.h"
#include "base/error.h"

namespace spillway::app {
namespace {

void check_run_settings(const TrainConfig& config) {
  if (config.out.empty()) throw Error(ErrorCode::usage, "[training] expected --out FOLDER, where the run is written");
  if (config.rehearse) throw Error(ErrorCode::usage, "[training] --rehearse works only on the command line");
}

}  // namespace

TrainConfig training_settings(const GivenMap& given, std::vector<std::string>& notes) {
  if (given.contains("help")) throw Error(ErrorCode::usage, "[training] --help works only on the command line");
  Settings settings = make_settings(Command::train, with_files(Command::train, given, notes));
  check_settings(settings, Host{});
  check_run_settings(std::get<TrainConfig>(settings));
  return std::get<TrainConfig>(settings);
}

Training::Training(const std::vector<std::string>& flags) { settings_ = training_settings(parse_flags(Command::train, flags), notes_); }

TrainingResult Training::run(std::ostream& results, std::ostream& log) {
  Console console(results, log);
  console.set_quiet(settings_.quiet);
  for (const std::string& note : notes_) console.log("--deepspeed: " + note);
  return train(settings_, {}, callbacks, results, log);
}

void check_training(TrainConfig& config) {
  check_own_settings(config, Host{});
  check_run_settings(config);
}

TrainingResult train(const TrainConfig& config, const OwnParts& own, const TrainCallbacks& callbacks, std::ostream& results,
                     std::ostream& log) {
  Console console(results, log);
  console.set_quiet(config.quiet);
  console.set_json(config.json);
  const auto train = [&](Console& rank_console, const Peers& peers) { return run_train(config, rank_console, peers, callbacks, own); };
  const auto start = []() -> int {
    throw Error(ErrorCode::usage, "[training] expected a launcher (srun, mpirun, torchrun) for several ranks, or --communicator local");
  };
  const int status = on_ranks(config, console, Host{}, train, start, false);
  TrainingResult result{status == 0, config.out, {}};
  if (newest_step(result.run) >= 0) result.checkpoint = find_checkpoint(result.run, "last");
  return result;
}

}  // namespace spillway::app
