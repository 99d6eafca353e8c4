// Lists the different ways to run one training that must all give the same numbers. Each way is a cell: a value for each of sixteen
// factors, such as tiers, overlap and precision. Four of the factors (model, precision, micro-batches, clipping) form the numbers key;
// cells that share it must agree in every bit.
#pragma once
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/parallel/run/support_run.h"
#include "tests/support/covering_array.h"

namespace spillway::test {

// Names the factors of a cell. The values of a tier are 0 device, 1 host, 2 nvme. Overlap 3 is the adaptive overlap, with half of the
// optimizer's updates deferred to the next forward. Clipping 0 means that no step is clipped, 1 that every step is clipped, 2 that some
// steps are.
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
/// Returns the cell as text: "parameters=nvme gradients=host …".
std::string to_string(const Row& cell);

/// Returns true if a cell exists or, if the cell has open factors, some completion of it exists. A split master
/// requires bf16 weights, and stripes and engine make a difference only if something is stored on nvme.
bool possible(const Row& cell);

/// Returns the options that run a cell. The clipping threshold is set by References.
RunOptions options_of(const Row& cell, i64 steps);

/// Holds the reference runs. The reference of a cell has the same model, precision, micro-batches and clipping, with everything on the
/// device and no overlap. The cell must give the same numbers. A reference is trained when it is first asked for.
class References {
 public:
  explicit References(i64 steps) : steps_(steps) {}
  const RunResult& of(const Row& cell);
  /// Returns the cell's clipping threshold: above all gradient norms, below all of them, or their median.
  double clipping(const Row& cell);

 private:
  RunResult plain(const Row& cell, double clipping) const;
  const i64 steps_;
  std::map<std::vector<int>, RunResult> results_;
  std::map<std::vector<int>, double> between_;
};

/// Trains a cell and returns what is wrong with it, or an empty text if nothing is. Wrong are a number that differs from the reference's,
/// a count of moved bytes that differs from the plan's, and a tier that is used although it should not be, or not used although it should
/// be.
std::string objection(const Row& cell, References& references, i64 steps);

}  // namespace spillway::test
