#include "app/training.h"

#include "app/commands/commands.h"
#include "app/deepspeed/deepspeed.h"
#include "base/error.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/ranks/on_ranks.h"
#include "trainer/train/train.h"

namespace spillway::app {
namespace {

// Parses and checks the flags. `notes` receives remarks on the DeepSpeed configuration file, if --deepspeed names one.
TrainConfig config_of(const std::vector<std::string>& flags, std::vector<std::string>& notes) {
  const GivenMap given = parse_flags(Command::train, flags);
  if (given.contains("help")) throw Error(ErrorCode::usage, "[training] --help works only on the command line");
  Settings settings = make_settings(Command::train, with_files(Command::train, given, notes));
  check_settings(settings, Host{});
  check_run_settings(std::get<TrainConfig>(settings));
  return std::get<TrainConfig>(settings);
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
  for (const std::string& note : notes) console.log("--deepspeed: " + note);
  console.set_json(config.json);
  return train(config, {}, callbacks, console);
}

}  // namespace spillway::app
