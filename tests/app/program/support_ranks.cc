#include "tests/app/program/support_ranks.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/commands/commands.h"
#include "trainer/node/failure.h"
#include "trainer/ranks/rank_threads.h"
#include "trainer/run/saves.h"
#include "trainer/settings/pipeline_wish.h"
#include "trainer/train/train.h"

namespace spillway::app {
namespace {

int run_command(const Settings& settings, Console& console, const Peers& peers) {
  if (const auto* generate = std::get_if<GenerateConfig>(&settings)) return run_generate(*generate, console, peers);
  if (const auto* evaluate = std::get_if<EvaluateConfig>(&settings)) return run_evaluate(*evaluate, console, peers);
  if (const auto* classify = std::get_if<ClassifyConfig>(&settings)) return run_classify(*classify, console, peers);
  return run_train(std::get<TrainConfig>(settings), console, peers);
}

// Runs a command on one rank and reports its failure as the program's main() does (entry.cc).
Outcome run_rank(const Settings& settings, std::unique_ptr<parallel::Communicator> end) {
  std::ostringstream out, err;
  int status = 0;
  {
    Console console(out, err);
    std::visit([&](const CommonConfig& common) { console.set_json(common.json); }, settings);
    try {
      status = run_command(settings, console, Peers(std::move(end), "here"));
    } catch (...) {
      const Failure failure = failure_of(std::current_exception());
      err << failure.text << "\n";
      status = static_cast<int>(failure.code);
    }
  }
  return {status, out.str(), err.str()};
}

// Sets the number of hardware connections to a GPU before CUDA is used, as the program does (keep_nccl_from_hanging). With CUDA's
// default of eight, a rank's copy to the host, for which another stage may wait, can queue behind an exchange that waits for that stage.
void on_ranks(int ranks, const RankBody& body) {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  std::ostream nowhere(nullptr);
  Console silent(nowhere, nowhere);
  run_rank_threads({.ranks = ranks}, silent, body);
}

}  // namespace

std::vector<Outcome> run_on(int ranks, Command command, const std::vector<std::string>& args,
                            const std::vector<std::vector<std::string>>& of_rank, const WrapEnd& wrap) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<Settings> settings;
  for (size_t r = 0; r < outcomes.size(); ++r) {
    std::vector<std::string> all = args;
    if (r < of_rank.size()) all.insert(all.end(), of_rank[r].begin(), of_rank[r].end());
    settings.push_back(settings_of(command, all));
  }
  on_ranks(ranks, [&](int rank, std::unique_ptr<parallel::Communicator> end) {
    const auto r = static_cast<size_t>(rank);
    outcomes[r] = run_rank(settings[r], wrap ? wrap(rank, std::move(end)) : std::move(end));
    return 0;
  });
  return outcomes;
}

std::vector<Outcome> train_on(int ranks, const std::vector<std::string>& args, const std::vector<std::vector<std::string>>& of_rank,
                              const WrapEnd& wrap) {
  return run_on(ranks, Command::train, args, of_rank, wrap);
}

void save_again(const std::filesystem::path& run, int step, int ranks, const std::vector<std::string>& args,
                const std::filesystem::path& onto) {
  auto config = std::get<TrainConfig>(settings_of(Command::train, args));
  config.ranks = ranks;
  resolve_device(config, {});
  const Workload work = work_of(config);
  on_ranks(ranks, [&](int, std::unique_ptr<parallel::Communicator> end) {
    const Peers peers(std::move(end), "here");
    Session session(config, {}, find_model(config.model), "again", {.master = config.master_weights}, peers.place(), pipeline_of(config));
    if (peers.first()) session.plan(*config.placement, work);
    const std::string choice = peers.from_first(peers.first() ? session.choice() : "");
    if (!peers.first()) session.adopt(choice, work);
    parallel::MeshEnds ends;
    if (peers.communicator()) ends = split_mesh(*peers.communicator(), session.mesh());
    session.open(nullptr, &ends);
    session.make_rank();
    load_checkpoint(checkpoint_path(run, step), session.source(), session.model(), session.rank());
    std::ostream nowhere(nullptr);
    Console console(nowhere, nowhere);
    RunFolder folder(onto, peers.first());
    Saves saves(session, folder, console, peers, 1, step);
    saves.begin(read_progress(checkpoint_path(run, step)), parallel::Snapshot::kPatient, true);
    saves.finish(true);
    return 0;
  });
}

std::vector<std::string> numbers_in(const std::filesystem::path& run) {
  std::ifstream file(run / "metrics.jsonl");
  std::vector<std::string> all;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    all.push_back(fmt::format("{} {} {} {}", row["step"].dump(), row["loss"].dump(), row["grad_norm"].dump(),
                              row.value("validation_loss", nlohmann::json()).dump()));
  }
  return all;
}

std::string state_in(const std::filesystem::path& run, int step) {
  std::stringstream bytes;
  for (const char* name : {"model.safetensors", "adapter_model.safetensors", "optimizer.safetensors"}) {
    std::ifstream file(run / "checkpoints" / fmt::format("step-{:08}", step) / name, std::ios::binary);
    if (file) bytes << file.rdbuf();
  }
  return bytes.str();
}

}  // namespace spillway::app
