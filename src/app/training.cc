#include "app/training.h"

#include "app/checkpoints/checkpoint.h"
#include "app/commands/commands.h"
#include "app/deepspeed/deepspeed.h"
#include "app/on_ranks.h"
#include "base/error.h"

namespace spillway::app {
namespace {

// Parses and checks the flags. `notes` receives remarks on the DeepSpeed configuration file, if --deepspeed names one.
TrainConfig config_of(const std::vector<std::string>& flags, std::vector<std::string>& notes) {
  const GivenMap given = parse_flags(Command::train, flags);
  if (given.contains("help")) throw Error(ErrorCode::usage, "[training] --help is the command's");
  Settings settings = make_settings(Command::train, with_files(Command::train, given, notes));
  check_settings(settings, Host{});
  const TrainConfig& config = std::get<TrainConfig>(settings);
  if (config.out.empty()) throw Error(ErrorCode::usage, "[training] expected --out FOLDER, where the run is written");
  if (config.rehearse) throw Error(ErrorCode::usage, "[training] --rehearse is the command's");
  return config;
}

}  // namespace

Training::Training(std::vector<std::string> flags) : flags_(std::move(flags)) {
  std::vector<std::string> notes;
  static_cast<void>(config_of(flags_, notes));
}

TrainingResult Training::run(std::ostream& results, std::ostream& log) {
  std::vector<std::string> notes;
  const TrainConfig config = config_of(flags_, notes);
  Console console(results, log);
  console.set_quiet(config.quiet);
  console.set_json(config.json);
  for (const std::string& note : notes) console.log("--deepspeed: " + note);
  const auto train = [&](Console& own, const Peers& peers) { return run_train(config, own, peers, callbacks); };
  const auto start = []() -> int {
    throw Error(ErrorCode::usage, "[training] expected a launcher (srun, mpirun, torchrun) for several ranks, or --communicator local");
  };
  const int status = on_ranks(config, console, Host{}, train, start, false);
  TrainingResult result{status == 0, config.out, {}};
  if (newest_step(result.run) >= 0) result.checkpoint = find_checkpoint(result.run, "last");
  return result;
}

}  // namespace spillway::app
