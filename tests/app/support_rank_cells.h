// The ways to train one small model on several ranks that must give one set of numbers, as cells: a value for each factor. Cells of one
// model share every bit.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "support/covering_array.h"
#include "tests/app/support_ranks.h"

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
  kRankFactors
};

std::vector<int> rank_factor_sizes();
/// "model=gpt2-tiny zero=3 …"
std::string to_string(const test::Row& cell);
/// Whether a cell (with open places: some completion of it) exists.
bool possible_ranks(const test::Row& cell);

class RankCells {
 public:
  RankCells();
  /// Trains the cell on all its ranks and says what is wrong with it: a number that differs from the reference's, bytes that did not cross
  /// or move as planned; empty when nothing is.
  std::string objection(const test::Row& cell, const std::vector<std::string>& more = {});

 private:
  struct Trained {
    std::vector<std::string> numbers;
    std::string state;
  };
  std::vector<std::string> flags(const test::Row& cell, const std::string& out) const;
  Trained train(const test::Row& cell, const std::vector<std::string>& more, std::string& wrong);
  const Trained& reference(int model);

  TemporaryFolder folder_;
  int runs_ = 0;
  std::map<int, Trained> references_;
};

}  // namespace spillway::app
