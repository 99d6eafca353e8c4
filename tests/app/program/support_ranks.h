// Runs commands on several ranks that are threads of the test, each with its own console.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "tests/app/support_app.h"

namespace spillway::app {

/// Wraps a rank's communicator, for example to plant faults.
using WrapEnd = std::function<std::unique_ptr<parallel::Communicator>(int rank, std::unique_ptr<parallel::Communicator> end)>;

/// Runs `spillway train|generate|evaluate args…` on `ranks` ranks and returns the outcome of each. Rank r also gets the arguments
/// `of_rank[r]`, if there are any.
std::vector<Outcome> run_on(int ranks, Command command, const std::vector<std::string>& args,
                            const std::vector<std::vector<std::string>>& of_rank = {}, const WrapEnd& wrap = {});
std::vector<Outcome> train_on(int ranks, const std::vector<std::string>& args, const std::vector<std::vector<std::string>>& of_rank = {},
                              const WrapEnd& wrap = {});

/// Loads the checkpoint of a run onto `ranks` ranks, with the tiers and ZeRO
/// stage of `args`, and saves it into the run `onto` without a training step.
void save_again(const std::filesystem::path& run, int step, int ranks, const std::vector<std::string>& args,
                const std::filesystem::path& onto);

/// Returns loss, gradient norm and validation loss of each step of a run, as text that keeps all their bits.
std::vector<std::string> numbers_in(const std::filesystem::path& run);
/// Returns the bytes of all files of a checkpoint that hold the run's training state.
std::string state_in(const std::filesystem::path& run, int step);

}  // namespace spillway::app
