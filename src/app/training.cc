#include "app/training.h"

#include "app/console/console.h"
#include "app/deepspeed/deepspeed.h"
#include "base/error.h"

namespace spillway::app {

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
  console.set_json(settings_.json);
  for (const std::string& note : notes_) console.log("--deepspeed: " + note);
  return train(settings_, {}, callbacks, console);
}

}  // namespace spillway::app
