// Trains in this process, for programs that use the library.
#include "base/error.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/deepspeed/deepspeed.h"
#include "trainer/ranks/on_ranks.h"
#include "trainer/train/train.h"

namespace spillway::trainer {
namespace {

void check_run_settings(const TrainConfig& config) {
  if (config.out.empty()) throw Error(ErrorCode::usage, "[training] expected --out FOLDER, where the run is written");
  if (config.rehearse) throw Error(ErrorCode::usage, "[training] --rehearse works only on the command line");
}

// Makes settings from given values. With `partial`, a required setting may be missing.
TrainConfig read_settings(const GivenMap& given, bool partial) {
  if (given.contains("help")) throw Error(ErrorCode::usage, "[training] --help works only on the command line");
  std::vector<std::string> notes;
  TrainConfig config = std::get<TrainConfig>(make_settings(Command::train, with_files(Command::train, given, notes), partial));
  for (const std::string& note : notes) config.notes.push_back("--deepspeed: " + note);
  return config;
}

}  // namespace

TrainConfig train_settings(const std::vector<std::string>& flags) { return train_settings(parse_flags(Command::train, flags)); }

TrainConfig train_settings(const GivenMap& given) {
  Settings settings = read_settings(given, false);
  check_settings(settings, Host{});
  check_run_settings(std::get<TrainConfig>(settings));
  return std::get<TrainConfig>(settings);
}

TrainConfig partial_settings(const GivenMap& given) { return read_settings(given, true); }

void check_training(TrainConfig& config) {
  check_own_settings(config, Host{});
  check_run_settings(config);
}

TrainingResult train(const TrainConfig& config, const OwnParts& own, const TrainCallbacks& callbacks, Messages& messages) {
  for (const std::string& note : config.notes) messages.log(note);
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
