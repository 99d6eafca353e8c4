// The ways to run one training that must give one set of numbers, as cells: a value for each of sixteen factors. Four of them (model,
// precision, micro-batches, clipping) are the numbers key: cells that share it share every bit.
#pragma once
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/parallel/run/support_run.h"
#include "tests/support/covering_array.h"

namespace spillway::test {

// Tiers are 0 device, 1 host, 2 nvme; overlap 3 is adaptive, with half of the Steps left to the next forward; clipping 0 never bites, 1
// always, 2 sometimes.
enum Factor {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kRecompute,
  kOverlap,
  kClipping,
  kMaster,
  kOrder,
  kStripes,
  kEngine,
  kPrefetch,
  kThreads,
  kPrecision,
  kMicroBatches,
  kModel,
  kFactors
};

struct FactorText {
  std::string_view name;
  std::vector<std::string_view> values;
};
const std::array<FactorText, kFactors>& factor_texts();
std::vector<int> factor_sizes();
/// "parameters=nvme gradients=host …"
std::string to_string(const Row& cell);

/// Whether a cell (with open places: some completion of it) exists: a split master is of bf16 weights, and stripes and engine are told
/// apart only where something lies on nvme.
bool possible(const Row& cell);

/// How to run a cell; clipping is filled in by References.
RunOptions options_of(const Row& cell, i64 steps);

/// The cell's numbers key on the device alone, plainly: what it must be equal to. Trained when first asked for.
class References {
 public:
  explicit References(i64 steps) : steps_(steps) {}
  const RunResult& of(const Row& cell);
  /// Above all norms, below all, or between them.
  double clipping(const Row& cell);

 private:
  RunResult plain(const Row& cell, double clipping) const;
  const i64 steps_;
  std::map<std::vector<int>, RunResult> results_;
  std::map<std::vector<int>, double> between_;
};

/// Trains a cell and says what is wrong with it: a number that differs from the reference's, bytes that did not move as planned, a tier
/// that moved none; empty when nothing is.
std::string objection(const Row& cell, References& references, i64 steps);

}  // namespace spillway::test
