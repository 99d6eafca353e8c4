// Where a run's steps spend their time: busy milliseconds of each kind of instruction and lane, on a CPU also of each op of the blocks, and
// the bytes or matrix operations per second it reached beside what bench measured. Lanes run at once, so shares of the step may add up to
// more than 1. One thread.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/node/calibration.h"
#include "app/plan/cost_model.h"
#include "parallel/run/rank.h"

namespace spillway::app {

struct ProfileRow {
  std::string kind, lane;                                   // "Fetch weights", "load"
  std::string op = "";                                      // one of the kind's, "conv2d"; empty: all
  double ms = 0, share = 0;                                 // of a step, mean
  std::optional<double> bytes_per_s, flops_per_s, ceiling;  // while busy, one of the two; what bench says is possible
  std::string ceiling_name;                                 // "disk read", "matmul"
};

class Profile {
 public:
  /// After each step of the rank.
  void step(const parallel::Rank& rank, const nn::Sequential& model, double seconds);
  /// Where the ops' times go (StepSettings).
  parallel::OpTimesOf& op_times() { return ops_; }
  /// Longest first, a kind's ops behind it. `disks`: the rates of each stripe, which take `shares` of the bytes.
  std::vector<ProfileRow> rows(const Calibration& calibration, const std::vector<DiskRates>& disks, const std::vector<u32>& shares) const;

  struct Sum {
    double ms = 0;
    i64 disk_read_bytes = 0, disk_written_bytes = 0;
    i64 memory_bytes = 0;  // read and written, of what goes through memory alone
    bool copies = false;   // else it computes on them
    double flops = 0;      // of matrix products
  };
  /// What its blocks multiply: block_flops() of one.
  using Flops = std::function<BlockFlops(u16 block)>;
  /// The sums of one list, for tests too.
  void add(
      const parallel::List& list, const std::vector<parallel::Timing>& timings, const parallel::Plan& plan,
      const Flops& flops = [](u16) { return BlockFlops{}; });

 private:
  bool on_gpu_ = false, halves_ = false;
  std::map<std::pair<std::string, std::string>, Sum> sums_;  // by kind and lane
  parallel::OpTimesOf ops_;
  double seconds_ = 0;
  i64 steps_ = 0;
};

std::string to_text(const std::vector<ProfileRow>& rows, bool measured);

}  // namespace spillway::app
