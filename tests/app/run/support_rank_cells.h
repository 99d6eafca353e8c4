// The ways to train one small model on several ranks that must give one set of numbers, as cells: a value for each factor. Cells of one
// model and gradient reduction share every bit. The models are the tiny presets; of two families one whose every bucket spans several tiles
// on every rank, not as many on all; and as large a one of each other kind of layer, data or training.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/app/run/support_ranks.h"
#include "tests/support/covering_array.h"

namespace spillway::app {

// Tiers are 0 device, 1 host, 2 nvme.
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
  kRankCommunicator,  // local, sockets, mpi
  kReduction,         // step, micro-batch: which has numbers of its own
  kRankFactors
};
constexpr int kCellDataRanks = 2;
// Models from here on are the other kinds: a mixture of experts, a sliding window, packed rows, adapters, adapters beside a base in nf4.
constexpr int kFirstKind = 4, kKinds = 5;

std::vector<int> rank_factor_sizes();
/// "model=gpt2-tiny zero=3 …"
std::string to_string(const test::Row& cell);
/// Whether a cell (with open places: some completion of it) exists: MPI where this was built with it; gradients are reduced micro-batch by
/// micro-batch from stage 2 on.
bool possible_ranks(const test::Row& cell);

/// A folder for --model with the config.json of the uneven model of a family: "gpt2", "llama", "mistral" (a window) or "mixtral" (experts).
std::string write_uneven_model(const TemporaryFolder& folder, const std::string& family);

class RankCells {
 public:
  /// `on_threads`: `spillway train args…` on ranks of this process, the first one's outcome.
  using OnThreads = std::function<Outcome(int ranks, const std::vector<std::string>& args)>;
  explicit RankCells(OnThreads on_threads = {});
  /// Trains the cell on all its ranks and says what is wrong with it: a number that differs from the reference's, bytes that any rank
  /// moved, gathered, summed or sent otherwise than planned; empty when nothing is. Flags `more` instead of the cell's own.
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
