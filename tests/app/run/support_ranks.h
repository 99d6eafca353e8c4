// Commands on several ranks that are threads of the test, each with a console of its own.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "tests/app/support_app.h"

namespace spillway::app {

/// Puts something between a rank and its end of the group.
using WrapEnd = std::function<std::unique_ptr<parallel::Communicator>(int rank, std::unique_ptr<parallel::Communicator> end)>;

/// `spillway train|generate|evaluate args…` on so many ranks; rank r gets `of_rank[r]` too, where there is one.
std::vector<Outcome> run_on(int ranks, Command command, const std::vector<std::string>& args,
                            const std::vector<std::vector<std::string>>& of_rank = {}, const WrapEnd& wrap = {});
std::vector<Outcome> train_on(int ranks, const std::vector<std::string>& args, const std::vector<std::vector<std::string>>& of_rank = {},
                              const WrapEnd& wrap = {});

/// Loads a run's checkpoint onto so many ranks, placed and staged as args say, and saves it into the run `onto` without a step.
void save_again(const std::filesystem::path& run, int step, int ranks, const std::vector<std::string>& args,
                const std::filesystem::path& onto);

/// A run's loss, norm and validation loss of each step, as text with all their bits.
std::vector<std::string> numbers_in(const std::filesystem::path& run);
/// The files of a run's checkpoint that hold its state, as bytes.
std::string state_in(const std::filesystem::path& run, int step);

}  // namespace spillway::app
