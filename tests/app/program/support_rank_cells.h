// Enumerates the ways to train one small model on several ranks that must all give equal numbers. Each way is a
// cell: one value for each factor. Cells with equal model and gradient reduction share every bit. The models are the
// tiny presets. Two families also have a model in which every bucket of parameters spans several tiles of 16,384
// elements on each rank, in unequal numbers. Each other kind of layer, data or training has one such uneven model.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/app/program/support_ranks.h"
#include "tests/support/covering_array.h"

namespace spillway::app {

// Names the factors of a cell. The values of the tier factors are 0 device, 1 host, 2 nvme.
enum RankFactor {
  kRankModel,
  kZero,
  kPipeline,
  kRankParameters,
  kRankGradients,
  kRankOptimizer,
  kKept,
  kRankOverlap,
  kRankThreads,
  kRankCommunicator,  // values: local, sockets, mpi
  kReduction,         // gradients are reduced once per step or per micro-batch, which gives different numbers
  kRankFactors
};
constexpr int kCellDataRanks = 2;
// Models from this index on have other kinds of layers, data or training: a mixture
// of experts, a sliding window, packed rows, adapters, and adapters on a base in nf4.
constexpr int kFirstKind = 4, kKinds = 5;

std::vector<int> rank_factor_sizes();
/// Returns a cell as text: "model=gpt2-tiny zero=3 …".
std::string to_string(const test::Row& cell);
/// Returns whether a cell can be run. A cell with open factors counts if some values for them make it
/// possible. MPI needs a build with MPI. From ZeRO stage 2 on, gradients are reduced after each micro-batch.
bool possible_ranks(const test::Row& cell);

/// Writes the config.json of a family's uneven model and returns its folder, for --model.
/// The families are "gpt2", "llama", "mistral" (sliding window) and "mixtral" (experts).
std::string write_uneven_model(const TemporaryFolder& folder, const std::string& family);

class RankCells {
 public:
  /// Runs `spillway train args…` on ranks that are threads of this process, and returns the first rank's outcome.
  using OnThreads = std::function<Outcome(int ranks, const std::vector<std::string>& args)>;
  explicit RankCells(OnThreads on_threads = {});
  /// Trains the cell on all its ranks and returns what is wrong with it: a number that differs from the reference run's, or bytes that a
  /// rank moved, gathered, summed or sent and that its plan did not predict. Returns "" if all is right. `more` replaces flags of the cell.
  std::string objection(const test::Row& cell, const std::vector<std::string>& more = {});

 private:
  struct Trained {
    std::vector<std::string> numbers;
    std::string state;
  };
  std::string model(const test::Row& cell) const;
  std::string base();
  std::vector<std::string> flags(const test::Row& cell, const std::string& out);
  Outcome start(const test::Row& cell, const std::vector<std::string>& flags) const;
  Trained train(const test::Row& cell, const std::vector<std::string>& more, std::string& wrong);
  const Trained& reference(int model, int reduction);

  TemporaryFolder folder_;
  const OnThreads on_threads_;
  int runs_ = 0;
  std::map<std::pair<int, int>, Trained> references_;
};

}  // namespace spillway::app
